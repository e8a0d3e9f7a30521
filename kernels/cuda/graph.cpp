#include "cuda/graph.hpp"

namespace prun::cuda {
namespace {

struct Destroy {
  void operator()(CUgraph_st* graph) const { cudaGraphDestroy(graph); }
};
using Captured = std::unique_ptr<CUgraph_st, Destroy>;

// The capture ends whatever happens.
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

}  // namespace

Graph::Graph(Stream stream, const std::function<void()>& work) {
  const Captured captured = capture(stream, work);
  std::size_t nodes = 0;
  check(cudaGraphGetNodes(captured.get(), nullptr, &nodes), "counting what a graph holds");
  nodes_ = static_cast<std::int64_t>(nodes);
  check(cudaGraphInstantiate(&graph_, captured.get(), 0), "making a graph");
  check(cudaGraphUpload(graph_, stream), "making a graph");
}

Graph::~Graph() { cudaGraphExecDestroy(graph_); }

}  // namespace prun::cuda
