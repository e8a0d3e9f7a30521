#include "execute/poison.hpp"

#include <algorithm>
#include <cstring>

namespace prun {
namespace {

constexpr std::byte untouched{0xa5};

void put_up(const std::vector<std::span<std::byte>>& fences) {
  for (const std::span<std::byte> fence : fences) std::fill(fence.begin(), fence.end(), untouched);
}

// Compares each byte with the next, which memcmp() does many at a time.
bool is_trampled(std::span<const std::byte> fence) {
  if (fence.empty()) return false;
  return fence.front() != untouched || std::memcmp(fence.data(), fence.data() + 1, fence.size() - 1) != 0;
}

}  // namespace

Poison::Poison(const Program& program, const Plan& plan, const PlanMemory& memory)
    : program_(program), plan_(plan), memory_(memory) {
  put_up(memory_.fences());
}

void Poison::before(const BoundPiece& piece, std::size_t index) const { put_up(piece.fences[index]); }

Status Poison::after(const Call& call, const BoundPiece& piece, std::size_t index) const {
  const auto& fences = piece.fences[index];
  const auto at = std::find_if(fences.begin(), fences.end(), is_trampled);
  if (at != fences.end())
    return trespass(call, index,
                    &plan_.steps(call)[index].fences[static_cast<std::size_t>(at - fences.begin())]);
  const auto& outside = memory_.fences();
  if (std::any_of(outside.begin(), outside.end(), is_trampled)) return trespass(call, index, nullptr);
  spoil(piece, index);
  return {};
}

void Poison::spoil(const BoundPiece& piece, std::size_t index) {
  for (const std::span<std::byte> dead : piece.dead[index]) std::memset(dead.data(), 0xff, dead.size());
}

// Reports a write into a fence; a null `fence` stands for those around all memory.
Status Poison::trespass(const Call& call, std::size_t index, const Fence* fence) const {
  const Op& op = program_.op(plan_.steps(call)[index].op);
  std::string where = "outside the arena";
  if (fence)
    where = detail::concat(fence->before ? "in front of " : "behind ",
                           fence->operand < 0
                               ? std::string("its workspace")
                               : detail::concat("its operand '", op.def->operands[fence->operand].name, "'"));
  const Instance& instance = plan_.instances[call.instance];
  return Status::failure(
      ErrorCode::bad_input,
      detail::concat("the kernel of op '", op.kind(), "' in layer ", instance.layer, " of '",
                     program_.segment(op.segment).name, "' wrote ", where, "; mend the kernel"));
}

}  // namespace prun
