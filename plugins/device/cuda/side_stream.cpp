#include "side_stream.hpp"

#include "cuda/graph.hpp"
#include "streams.hpp"

namespace prun::cuda {

SideStream::SideStream() : stream_(make_stream(priorities().least)) {
  check(cudaMalloc(&workspace_, workspace_bytes), "memory for what runs beside");
}

SideStream::~SideStream() {
  cudaStreamDestroy(stream_);
  cudaFree(workspace_);
}

// Events are where lines meet; the last event recorded of a line stands for all before it.
void SideStream::run_branched(Stream main, std::span<const Branch> branches, const Run& run) const {
  std::vector<Event> ends(branches.size() + 1);
  const auto meet = [](Stream waits, Stream other, Event& event) {
    check(cudaEventRecord(event.get(), other), "meeting a branch");
    check(cudaStreamWaitEvent(waits, event.get(), 0), "meeting a branch");
  };
  meet(stream_, main, ends.back());
  int met[2] = {-1, -1};  // by line: the last work of the other line that it has waited for
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const auto [beside, after] = branches[i];
    Stream own = beside ? stream_ : main;
    if (after > met[beside]) {
      check(cudaStreamWaitEvent(own, ends[static_cast<std::size_t>(after)].get(), 0), "meeting a branch");
      met[beside] = after;
    }
    run(i, own);
    check(cudaEventRecord(ends[i].get(), own), "ending a work");
  }
  meet(main, stream_, ends.back());
}

}  // namespace prun::cuda
