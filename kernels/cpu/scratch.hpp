// Cuts a kernel's workspace into aligned pieces. The same cuts, written once, give the size to declare and,
// when the kernel runs, the addresses.
#pragma once

#include <cstdint>

#include "cpu/isa.hpp"

namespace prun::cpu::PRUN_ISA {

class Scratch {
 public:
  // Takes a workspace at any address.
  explicit Scratch(void* workspace) : next_(round_up(reinterpret_cast<std::uintptr_t>(workspace))) {
    begin_ = next_;
  }
  // Has no workspace: the pieces are only counted and must not be touched.
  Scratch() : Scratch(nullptr) {}

  // Returns uninitialised memory, aligned for any vector.
  template <class T>
  T* take(std::int64_t count) {
    const auto piece = next_;
    next_ = round_up(piece + static_cast<std::uintptr_t>(count) * sizeof(T));
    return reinterpret_cast<T*>(piece);
  }
  // Returns the bytes that a workspace at any address must have for the pieces taken so far.
  std::int64_t bytes() const { return static_cast<std::int64_t>(next_ - begin_ + alignment); }

 private:
  static constexpr std::uintptr_t alignment = 64;
  static std::uintptr_t round_up(std::uintptr_t address) {
    return (address + alignment - 1) / alignment * alignment;
  }

  std::uintptr_t begin_, next_;
};

}  // namespace prun::cpu::PRUN_ISA
