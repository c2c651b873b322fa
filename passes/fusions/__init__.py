"""Several kernels made one."""
