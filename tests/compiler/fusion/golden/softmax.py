import numpy as np


def row(in0, out1, first, last):
    scratch0 = np.empty(200, np.float32)
    for i1 in range(first, last):
        c3 = np.float32(-np.inf)
        for i2 in range(200):
            v5 = i1 * 200
            v6 = v5 + i2
            v7 = in0[v6]
            v8 = np.maximum(c3, v7)
            c3 = v8
        r4 = c3
        c10 = np.float32(0.0)
        for i9 in range(200):
            v12 = i1 * 200
            v13 = v12 + i9
            v14 = in0[v13]
            v15 = v14 - r4
            v16 = np.exp(v15)
            scratch0[i9] = v16
            v17 = c10 + v16
            c10 = v17
        r11 = c10
        for i18 in range(200):
            v19 = scratch0[i18]
            v20 = np.float32(1.0) / r11
            v21 = v19 * v20
            v22 = i1 * 200
            v23 = v22 + i18
            out1[v23] = v21
