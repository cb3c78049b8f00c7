"""Side-by-side benchmarks: each module measures px against its peers in one run and prints ratios."""
