"""Models of Keras 3 on its JAX backend."""

import os
import tempfile

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
import numpy as np
from keras import layers

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(64, 16, 16, 1)).astype("float32")
LABELS = (IMAGES.mean((1, 2, 3)) > 0).astype("int32")
WORDS = RANDOM.integers(0, 50, size=(64, 12))


def convolutional_network():
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.3),
            layers.Dense(2, activation="softmax"),
        ]
    )
    lines = []
    model.summary(print_fn=lambda line, **options: lines.append(line))
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    history = model.fit(IMAGES, LABELS, epochs=2, batch_size=16, validation_split=0.25, verbose=0).history
    with tempfile.TemporaryDirectory() as folder:
        model.save(f"{folder}/model.keras")
        loaded = keras.models.load_model(f"{folder}/model.keras")
    return history, model.evaluate(IMAGES, LABELS, verbose=0), loaded.predict(IMAGES, verbose=0), len(lines)


def recurrent_network():
    keras.utils.set_random_seed(2)
    rows = [layers.Embedding(50, 16, mask_zero=True), layers.Bidirectional(layers.LSTM(12, dropout=0.1))]
    model = keras.Sequential([*rows, layers.Dense(1, activation="sigmoid")])
    model.compile(keras.optimizers.RMSprop(1e-2), "binary_crossentropy", metrics=[keras.metrics.AUC(name="auc")])
    history = model.fit(WORDS, (WORDS.sum(1) % 2).astype("float32"), epochs=2, batch_size=32, verbose=0).history
    return history, model.predict(WORDS, verbose=0)


def transformer_in_a_training_step():
    keras.utils.set_random_seed(3)
    tokens = keras.Input((12,), dtype="int32")
    x = layers.Embedding(50, 32)(tokens)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(4, 8, dropout=0.1)(x, x, use_causal_mask=True))
    x = layers.LayerNormalization()(x + layers.Dense(32)(layers.Dense(64, activation="gelu")(x)))
    model = keras.Model(tokens, layers.Dense(50)(x))
    optimizer = keras.optimizers.AdamW(1e-3)
    optimizer.build(model.trainable_variables)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def error(trained, others):
        logits, others = model.stateless_call(trained, others, WORDS, training=True)
        return loss(np.roll(WORDS, -1, 1), logits), others

    @jax.jit
    def step(trained, others, state):
        (value, others), gradients = jax.value_and_grad(error, has_aux=True)(trained, others)
        trained, state = optimizer.stateless_apply(state, gradients, trained)
        return value, trained, others, state

    trained = [v.value for v in model.trainable_variables]
    others, state = [v.value for v in model.non_trainable_variables], [v.value for v in optimizer.variables]
    values = []
    for _ in range(3):
        value, trained, others, state = step(trained, others, state)
        values.append(value)
    return values, trained


PROGRAMS = [convolutional_network, recurrent_network, transformer_in_a_training_step]
