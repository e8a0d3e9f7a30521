// Reserves addresses that stand for bytes elsewhere and hold none: code that touches them ends at once,
// instead of computing with what is not there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prun::nvme {

class AddressSpace {
 public:
  explicit AddressSpace(std::int64_t bytes);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  void* begin() const { return begin_; }
  bool has(const void* address) const {
    const auto* const at = static_cast<const std::byte*>(address);
    return begin_ <= at && at < begin_ + bytes_;
  }
  std::int64_t offset_of(const void* address) const {
    return static_cast<const std::byte*>(address) - begin_;
  }

 private:
  std::byte* begin_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace prun::nvme
