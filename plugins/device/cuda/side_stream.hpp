// Is the second stream of a queue, with a workspace for the work that runs there beside the first.
#pragma once

#include <functional>
#include <span>

#include "branches.hpp"
#include "cuda/gemm.hpp"

namespace prun::cuda {

class SideStream {
 public:
  static constexpr std::int64_t workspace_bytes = gemm_workspace;

  SideStream();
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  void* workspace() const { return workspace_; }

  // Gives each work to the stream that its branch says: `run(i, stream)` does that with the one of number i.
  // The side begins behind what `main` was given, and what it is given later runs behind both.
  using Run = std::function<void(std::size_t work, Stream stream)>;
  void run_branched(Stream main, std::span<const Branch> branches, const Run& run) const;

 private:
  Stream stream_;
  void* workspace_ = nullptr;
};

}  // namespace prun::cuda
