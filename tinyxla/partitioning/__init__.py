"""Programs over meshes of devices: from a program of whole arrays, and shardings, to what each process runs.

`propagation` finds the sharding of every value, `spmd` makes the program of a device, which `resharding` helps with
collective operations over the axes of the mesh, `processes` resolves these among processes, and `lanes` among the
devices of a process. `array` has the arrays whose parts are on devices, `execution` runs programs on them, `placement`
puts arrays where shardings say.
"""
