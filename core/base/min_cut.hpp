// Finds the cheapest set of edges that separates a source from a sink (Ford-Fulkerson, shortest paths first),
// for graphs of some hundred nodes.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace prun {

class FlowGraph {
 public:
  // An edge of this capacity is never cut.
  static constexpr std::int64_t unbounded = std::numeric_limits<std::int64_t>::max() / 4;

  explicit FlowGraph(std::size_t nodes) : edges_of_(nodes) {}

  void add_edge(std::size_t from, std::size_t to, std::int64_t capacity);

  // Says, by node, whether it is on the sink's side of a cheapest cut: of several, the one nearest to the
  // sink. Every path from source to sink needs an edge that is bounded. The call uses the graph up.
  std::vector<bool> sink_side(std::size_t source, std::size_t sink);

 private:
  struct Edge {
    std::size_t to;
    std::int64_t left;  // rest of its capacity
  };

  // Finds the edge that leads to each node on a shortest path with capacity left; the source has none.
  bool find_path(std::size_t source, std::size_t sink, std::vector<std::size_t>& arrived_by) const;

  std::vector<Edge> edges_;  // edges 2i and 2i + 1 are an edge and its reverse
  std::vector<std::vector<std::size_t>> edges_of_;
};

}  // namespace prun
