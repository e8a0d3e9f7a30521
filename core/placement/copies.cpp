#include "placement/copies.hpp"

#include "ops/base_ops.hpp"

namespace prun {

bool is_elsewhere(const Program& program, Id id) {
  return id != none && program.value(id).place.value_or(MemoryPlace{}) != MemoryPlace{};
}

MemoryPlace place_taken(Program& program, const std::vector<Id>& members) {
  MemoryPlace place;
  for (Id id : members) {
    place = *program.value(id).place;
    program.value(id).place.reset();
  }
  return place;
}

std::string described(const Program& program, Id id) {
  const Value& value = program.value(id);
  return detail::concat("'", program.segment(value.segment).name, ".", value.name, "'");
}

void add_copy(Program& program, Id segment, FunctionKind function, Id from, Id to, Id before) {
  const auto on_disk = [&](Id id) {
    return program.value(id).place.value_or(MemoryPlace{}).space == Space::disk;
  };
  if (on_disk(from) || on_disk(to)) {
    const Id passing = program.add_op_creating(segment, function, Part::input, base_ops::copy,
                                               std::span(&from, 1), {}, before)[0];
    program.value(passing).placement = program.value(to).placement;
    program.value(passing).place = MemoryPlace{0, Space::pinned};
    from = passing;
  }
  program.add_op(segment, function, Part::input, base_ops::copy, {from, to}, {}, before);
}

}  // namespace prun
