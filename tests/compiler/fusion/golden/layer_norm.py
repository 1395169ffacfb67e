import numpy as np


def row(in0, in1, in2, out3, first, last):
    for i1 in range(first, last):
        c3 = np.float32(0.0)
        for i2 in range(200):
            v5 = i1 * 200
            v6 = v5 + i2
            v7 = in0[v6]
            v8 = c3 + v7
            c3 = v8
        r4 = c3
        c10 = np.float32(0.0)
        for i9 in range(200):
            v12 = i1 * 200
            v13 = v12 + i9
            v14 = in0[v13]
            v15 = r4 / np.float32(200.0)
            v16 = v14 - v15
            v17 = v16 * v16
            v18 = c10 + v17
            c10 = v18
        r11 = c10
        for i19 in range(200):
            v20 = i1 * 200
            v21 = v20 + i19
            v22 = in0[v21]
            v23 = r4 / np.float32(200.0)
            v24 = v22 - v23
            v25 = r11 / np.float32(200.0)
            v26 = v25 + np.float32(9.999999747378752e-06)
            v27 = np.sqrt(v26)
            v28 = v24 / v27
            v29 = in1[i19]
            v30 = v28 * v29
            v31 = in2[i19]
            v32 = v30 + v31
            out3[v21] = v32
