#include "plan/proof/check_lists.hpp"

#include "plan/proof/check_failure.hpp"

namespace prun {
namespace {

// Bytes of a region. A rank's shard may be any part of its range.
struct TouchedBytes {
  const Address& address;
  std::int64_t end = 0;

  TouchedBytes(const Program& program, const Address& a) : address(a) {
    const std::int64_t parts = a.part_axis == no_axis ? 1 : program.mesh().extent(a.part_axis);
    end = a.offset + parts * a.bytes;
  }
  bool meets(const TouchedBytes& other) const {
    const Address &a = address, &b = other.address;
    return a.region == b.region && a.range == b.range && a.whose == b.whose && a.instance == b.instance &&
           a.offset < other.end && b.offset < end;
  }
};

bool touch_each_other(const Program& program, const PlannedExchange& a, const PlannedExchange& b) {
  const TouchedBytes a_in(program, a.in), a_out(program, a.out), b_in(program, b.in), b_out(program, b.out);
  return a_out.meets(b_in) || a_out.meets(b_out) || a_in.meets(b_out);
}

}  // namespace

void check_lists(const Program& program, const Plan& plan) {
  for (const PlannedFunction& function : plan.functions)
    for (const Piece& piece : function.pieces)
      for (std::int32_t later = piece.first + 1; later < piece.last; ++later)
        for (std::int32_t earlier = piece.first; earlier < later; ++earlier) {
          const PlannedStep &a = function.steps[earlier], &b = function.steps[later];
          if (a.exchange && b.exchange && touch_each_other(program, *a.exchange, *b.exchange))
            fail_check("segment '", program.segment(function.segment).name, "', ", name_of(function.kind),
                       ": exchanges ", earlier, " and ", later, " of one list touch the same bytes");
        }
}

}  // namespace prun
