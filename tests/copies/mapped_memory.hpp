// Memory of a GPU that is backed by hand, as the device `cuda` has it, so that other processes may map it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wires.hpp"

namespace prun::test {

class MappedMemory {
 public:
  // It has `bytes` at least.
  MappedMemory(const copies::Driver& driver, std::int64_t bytes);
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }
  std::int64_t bytes() const { return static_cast<std::int64_t>(bytes_); }

 private:
  const copies::Driver& driver_;
  std::size_t bytes_;
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle handle_ = 0;
};

}  // namespace prun::test
