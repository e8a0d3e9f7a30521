// Does what run.poison adds around each kernel: fences that must stay as they are, and NaN in bytes that are
// not read again. The host must be able to write the device's memory.
#pragma once

#include "execute/binding.hpp"

namespace prun {

class Poison {
 public:
  // All of these must outlive it; the fences of the memory are filled.
  Poison(const Program& program, const Plan& plan, const PlanMemory& memory);

  // Fills the fences of a kernel. The plan's waits cover fences too, so nothing else touches them meanwhile.
  void before(const BoundPiece& piece, std::size_t index) const;
  // Returns an error if the kernel has written into one of its fences, or into the memory's.
  Status after(const Call& call, const BoundPiece& piece, std::size_t index) const;
  // Overwrites dead bytes of a launch or exchange.
  static void spoil(const BoundPiece& piece, std::size_t index);

 private:
  Status trespass(const Call& call, std::size_t index, const Fence* fence) const;

  const Program& program_;
  const Plan& plan_;
  const PlanMemory& memory_;
};

}  // namespace prun
