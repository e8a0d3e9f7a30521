#include "cuda/graph.hpp"

#include <algorithm>
#include <vector>

namespace prun::cuda {
namespace {

struct Destroy {
  void operator()(CUgraph_st* graph) const { cudaGraphDestroy(graph); }
};
using Captured = std::unique_ptr<CUgraph_st, Destroy>;

// The capture is ended whatever happens.
Captured capture(Stream stream, const std::function<void()>& work) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capturing work");
  try {
    work();
  } catch (const Error&) {
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(stream, &graph), "capturing work");
  return Captured(graph);
}

std::vector<cudaGraphNode_t> nodes_of(const Captured& graph) {
  std::size_t count = 0;
  check(cudaGraphGetNodes(graph.get(), nullptr, &count), "counting what a graph holds");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) check(cudaGraphGetNodes(graph.get(), nodes.data(), &count), "listing what a graph holds");
  return nodes;
}

bool is_kernel(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  check(cudaGraphNodeGetType(node, &type), "asking what a graph holds");
  return type == cudaGraphNodeTypeKernel;
}

}  // namespace

bool enqueues_kernels_alone(Stream stream, const std::function<void()>& work) {
  const Captured captured = capture(stream, work);
  const std::vector<cudaGraphNode_t> nodes = nodes_of(captured);  // they end with the graph
  return std::all_of(nodes.begin(), nodes.end(), is_kernel);
}

Graph::Graph(Stream stream, const std::function<void()>& work) {
  const Captured captured = capture(stream, work);
  nodes_ = static_cast<std::int64_t>(nodes_of(captured).size());
  check(cudaGraphInstantiate(&graph_, captured.get(), 0), "making a graph");
  check(cudaGraphUpload(graph_, stream), "making a graph");
}

Graph::~Graph() { cudaGraphExecDestroy(graph_); }

}  // namespace prun::cuda
