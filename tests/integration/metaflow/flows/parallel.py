"""A @parallel step: a control task that starts its siblings itself."""

from metaflow import FlowSpec, current, parallel, step


class ParallelFlow(FlowSpec):
    """Three nodes."""

    @step
    def start(self):
        self.next(self.nodes, num_parallel=3)

    @parallel
    @step
    def nodes(self):
        self.node = (current.parallel.node_index, current.parallel.num_nodes)
        self.next(self.joined)

    @step
    def joined(self, inputs):
        self.nodes_seen = sorted(i.node for i in inputs)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    ParallelFlow()
