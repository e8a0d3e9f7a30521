#include "spread.hpp"

#include <algorithm>
#include <cmath>

namespace prun {
namespace {

Sized tensor_of(Id value, const ValueInfo& info, std::int64_t repeat) {
  return {value, static_cast<double>(repeat) * bytes_of(info), repeat > 1};
}

}  // namespace

double bytes_of(const ValueInfo& info) {
  auto bytes = static_cast<double>(size_of(info.dtype));
  for (std::int32_t d = 0; d < info.rank; ++d) bytes *= static_cast<double>(info.dims[d].extent);
  return bytes;
}

std::vector<Id> operands_of(const OpInfo& op) { return {op.operands.begin(), op.operands.end()}; }

Users::Users(ProgramRef program) {
  for (const Segment& segment : program.segments())
    for (int kind = 0; kind < function_kinds; ++kind)
      for (const Id id : segment.operations(static_cast<FunctionKind>(kind))) add(program.op(id));
}

void Users::add(const OpInfo& op) {
  const bool updates = op.function == FunctionKind::update && !op.def->exchange;
  for (std::size_t i = 0; i < op.operands.size; ++i) {
    const bool writes = op.def->operands[i].access != Access::read;
    if (!updates) others_touch_.insert(op.operands.data[i]);
    if (updates && writes) updates_write_.insert(op.operands.data[i]);
  }
}

std::vector<Sized> states_of(ProgramRef program, const Users& users) {
  std::vector<Sized> states;
  std::set<Id> seen;
  for (const Segment& segment : program.segments())
    for (const Id op : segment.operations(FunctionKind::update)) {
      if (program.op(op).def->exchange) continue;
      for (const Id value : operands_of(program.op(op))) {
        if (value == none || !users.only_updates_touch(value) || !seen.insert(value).second) continue;
        const ValueInfo info = program.value(value);
        if (info.role == Role::state) states.push_back(tensor_of(value, info, segment.info().repeat));
      }
    }
  return states;
}

std::vector<Sized> tensors_of(ProgramRef program, Role role) {
  std::vector<Sized> tensors;
  for (const Segment& segment : program.segments())
    for (const Id value : segment.values())
      if (const ValueInfo info = program.value(value); info.role == role)
        tensors.push_back(tensor_of(value, info, segment.info().repeat));
  return tensors;
}

Spread::Spread(std::vector<Sized> tensors, const Shares& shares) {
  for (const Sized& one : tensors) bytes_ += one.bytes;
  for (const Share& share : shares) wanted_.push_back({share.place, bytes_ * share.percent / 100});
  std::stable_sort(tensors.begin(), tensors.end(), [](const Sized& a, const Sized& b) {
    return a.of_layers != b.of_layers ? b.of_layers : a.bytes > b.bytes;
  });
  const auto wants_less = [](const Wanted& a, const Wanted& b) { return a.wanted < b.wanted; };
  const auto lacks_less = [](const Wanted& a, const Wanted& b) {
    return a.wanted - a.bytes < b.wanted - b.bytes;
  };
  for (const Sized& one : tensors) {
    Wanted& share = one.of_layers ? *std::max_element(wanted_.begin(), wanted_.end(), lacks_less)
                                  : *std::max_element(wanted_.begin(), wanted_.end(), wants_less);
    share.bytes += one.bytes;
    place_of_[one.id] = share.place;
  }
}

std::string Spread::said() const {
  Shares shares;
  for (const Wanted& share : wanted_)
    shares.push_back({share.place, static_cast<int>(std::lround(100 * share.bytes / std::max(bytes_, 1.0)))});
  return prun::said(shares);
}

}  // namespace prun
