#include "base/min_cut.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace prun::min_cut_test {
namespace {

struct Edge {
  std::size_t from, to;
  std::int64_t capacity;
};

std::int64_t cost_of(const std::vector<Edge>& edges, const std::vector<bool>& sink_side) {
  std::int64_t cost = 0;
  for (const Edge& edge : edges)
    if (!sink_side[edge.from] && sink_side[edge.to]) cost += edge.capacity;
  return cost;
}

std::vector<bool> cut(const std::vector<Edge>& edges, std::size_t nodes) {
  FlowGraph graph(nodes);
  for (const Edge& edge : edges) graph.add_edge(edge.from, edge.to, edge.capacity);
  return graph.sink_side(0, nodes - 1);
}

// Every way to divide the nodes: 0 is the source, the last one the sink.
std::int64_t cheapest(const std::vector<Edge>& edges, std::size_t nodes, std::size_t& smallest_sink_side) {
  std::int64_t best = FlowGraph::unbounded;
  for (std::size_t choice = 0; choice < std::size_t{1} << (nodes - 2); ++choice) {
    std::vector<bool> side(nodes, false);
    side[nodes - 1] = true;
    for (std::size_t i = 1; i + 1 < nodes; ++i) side[i] = (choice >> (i - 1) & 1u) != 0;
    const std::int64_t cost = cost_of(edges, side);
    const auto size = static_cast<std::size_t>(std::count(side.begin(), side.end(), true));
    if (cost < best || (cost == best && size < smallest_sink_side)) smallest_sink_side = size;
    best = std::min(best, cost);
  }
  return best;
}

TEST(MinCut, IsTheCheapestAndNearestToTheSink) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const std::size_t nodes = 3 + below(7);
    std::vector<Edge> edges;
    for (std::size_t i = 0, count = below(24); i < count; ++i)
      edges.push_back({below(nodes), below(nodes), static_cast<std::int64_t>(below(6))});
    const std::vector<bool> side = cut(edges, nodes);
    EXPECT_FALSE(side.front());
    EXPECT_TRUE(side.back());
    std::size_t smallest = nodes;
    EXPECT_EQ(cost_of(edges, side), cheapest(edges, nodes, smallest)) << "round " << round;
    EXPECT_EQ(static_cast<std::size_t>(std::count(side.begin(), side.end(), true)), smallest);
  }
}

TEST(MinCut, APathWithoutABoundIsAnError) {
  EXPECT_ANY_THROW(cut({{0, 1, FlowGraph::unbounded}, {1, 2, FlowGraph::unbounded}}, 3));
}

}  // namespace
}  // namespace prun::min_cut_test
