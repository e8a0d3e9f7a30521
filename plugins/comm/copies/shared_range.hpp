// Opens a range of a GPU's memory, backed by hand, that another member has.
#pragma once

#include "driver.hpp"
#include "wires.hpp"

namespace prun::copies {

// Describes memory as it was allocated, with a file that stands for it.
struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  File file;
};
// Returns the allocation that an address is in. It must have been backed by hand, with handles that are
// files; throws otherwise.
Allocation allocation_of(const Driver& driver, void* address);

// Maps the memory that such a file stands for, for the current GPU.
class SharedRange {
 public:
  SharedRange(const Driver& driver, int file, std::size_t bytes);
  ~SharedRange();
  SharedRange(const SharedRange&) = delete;
  SharedRange& operator=(const SharedRange&) = delete;
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  void free();

  const Driver& driver_;
  const std::size_t bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
  bool imported_ = false, mapped_ = false;
};

}  // namespace prun::copies
