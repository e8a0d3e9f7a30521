#include "stamps.hpp"

#include "cuda/launch.hpp"
#include "cuda/stamp.hpp"

namespace prun::cuda {

std::uint64_t* Stamps::create() {
  constexpr std::int64_t page = 4096;
  if (free_.empty()) {
    auto* first = static_cast<std::uint64_t*>(pages_.emplace_back(page).data());
    for (std::int64_t i = 0; i < page / 8; ++i) free_.push_back(first + i);
    write_time(first, nullptr);  // the call loads its kernel
    check(cudaDeviceSynchronize(), "trying a stamp");
  }
  std::uint64_t* const stamp = free_.back();
  free_.pop_back();
  return stamp;
}

}  // namespace prun::cuda
