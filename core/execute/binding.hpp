// Binds a plan's calls to memory: what is launched or exchanged, ready to be passed on.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "execute/plan_memory.hpp"
#include "plan/bound_calls.hpp"
#include "prun/comm.hpp"

namespace prun {

// Holds what a call launches or, on a queue that communicates, exchanges.
struct BoundPiece {
  std::vector<Launch> launches;
  // Holds the operations of the plan's exchanges one after the other; those of exchange i end at ends[i].
  std::vector<CommOp> exchanges;
  std::vector<std::size_t> ends;
  // These hold, by launch or exchange and where requested, bytes that are not read again, and the plan's
  // fences around what the kernel gets.
  std::vector<std::vector<std::span<std::byte>>> dead, fences;

  std::span<const CommOp> exchange(std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[i - 1];
    return std::span(exchanges).subspan(begin, ends[i] - begin);
  }
};

class Binding {
 public:
  // All of these must outlive the binding. `poison` says whether to list what is dead and fenced.
  Binding(const Program& program, const Plan& plan, const PlanMemory& memory, std::int64_t rank, bool poison)
      : program_(program), plan_(plan), memory_(memory), rank_(rank), poison_(poison) {}

  // Binds a call; calls that differ in nothing share one piece. It lives as long as the binding.
  const BoundPiece& bind(const Call& call, int side);

 private:
  Launch bind_step(const Call& call, const PlannedStep& step, std::uint32_t first, int side);
  void pass_update_settings(KernelArgs& args, const Op& op);
  void bind_exchange(const Call& call, const PlannedStep& step, int side, BoundPiece& piece) const;
  std::span<std::byte> bytes_at(const Call& call, const Address& address, int side) const;

  const Program& program_;
  const Plan& plan_;
  const PlanMemory& memory_;
  std::int64_t rank_;
  bool poison_;
  std::map<BoundKey, std::unique_ptr<BoundPiece>> bound_;
  // These belong to launches, at stable addresses.
  std::deque<std::vector<Tensor>> tensors_;
  std::deque<std::vector<TensorElements>> updates_;
};

}  // namespace prun
