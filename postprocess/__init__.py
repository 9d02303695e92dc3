"""From a results folder to arrays and pictures. Reads files only; runs on one process, without MPI."""
