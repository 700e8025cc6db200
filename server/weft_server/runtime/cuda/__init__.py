"""What only a CUDA device needs: states and weights in its memory, copies there, and the graphs that it runs."""
