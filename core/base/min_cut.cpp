#include "base/min_cut.hpp"

#include <algorithm>

#include "prun/error.hpp"

namespace prun {

void FlowGraph::add_edge(std::size_t from, std::size_t to, std::int64_t capacity) {
  edges_of_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

bool FlowGraph::find_path(std::size_t source, std::size_t sink, std::vector<std::size_t>& arrived_by) const {
  const std::size_t unseen = edges_.size();
  arrived_by.assign(edges_of_.size(), unseen);
  std::vector<std::size_t> queue{source};
  for (std::size_t head = 0; head < queue.size(); ++head)
    for (const std::size_t edge : edges_of_[queue[head]]) {
      const std::size_t to = edges_[edge].to;
      if (edges_[edge].left == 0 || to == source || arrived_by[to] != unseen) continue;
      arrived_by[to] = edge;
      if (to == sink) return true;
      queue.push_back(to);
    }
  return false;
}

std::vector<bool> FlowGraph::sink_side(std::size_t source, std::size_t sink) {
  std::vector<std::size_t> arrived_by;
  while (find_path(source, sink, arrived_by)) {
    std::int64_t flow = unbounded;
    for (std::size_t node = sink; node != source; node = edges_[arrived_by[node] ^ 1].to)
      flow = std::min(flow, edges_[arrived_by[node]].left);
    PRUN_CHECK(flow < unbounded, "a path that no cut can separate");
    for (std::size_t node = sink; node != source; node = edges_[arrived_by[node] ^ 1].to) {
      edges_[arrived_by[node]].left -= flow;
      edges_[arrived_by[node] ^ 1].left += flow;
    }
  }
  // The search goes backwards from the sink along edges that still have capacity.
  std::vector<bool> side(edges_of_.size(), false);
  std::vector<std::size_t> queue{sink};
  side[sink] = true;
  for (std::size_t head = 0; head < queue.size(); ++head)
    for (const std::size_t edge : edges_of_[queue[head]]) {
      const std::size_t from = edges_[edge].to;
      if (edges_[edge ^ 1].left == 0 || side[from]) continue;
      side[from] = true;
      queue.push_back(from);
    }
  return side;
}

}  // namespace prun
