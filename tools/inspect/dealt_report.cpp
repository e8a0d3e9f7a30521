#include "inspect/dealt_report.hpp"

#include <map>
#include <vector>

#include "base/format.hpp"

namespace prun {
namespace {

// Counts one rank's share.
struct Share {
  std::int64_t tensors = 0;
  double flops = 0;
};

// Returns "dp" or "dp+cp": the axes over which it is sharded.
std::string axes_text(const Program& program, Id part) {
  std::string text;
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.value(part).on(axis).is_sharded())
      text += (text.empty() ? "" : "+") + program.mesh().name(axis);
  return text;
}

std::map<std::string, std::vector<Share>> dealt_by_axis(const Program& program) {
  std::map<std::string, std::vector<Share>> all;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).ops(FunctionKind::update)) {
      const Op& op = program.op(id);
      if (!op.def->dealt || op.operands[1] == none) continue;
      const auto ranks = static_cast<std::int64_t>(program.attr(id, "ranks")),
                 first = static_cast<std::int64_t>(program.attr(id, "first"));
      std::vector<Share>& shares = all[axes_text(program, op.operands[1])];
      shares.resize(static_cast<std::size_t>(ranks));
      for (std::int64_t layer = 0; layer < program.segment(segment).repeat; ++layer) {
        Share& share = shares[static_cast<std::size_t>((first + layer) % ranks)];
        ++share.tensors;
        share.flops += op.cost(program.local_shape(op)).flops * static_cast<double>(ranks);
      }
    }
  return all;
}

}  // namespace

std::string dealt_text(const Program& program) {
  std::string text;
  for (const auto& [axis, shares] : dealt_by_axis(program)) {
    text += "dealt       updates of whole tensors, by coordinate of " + axis + ":";
    for (std::size_t rank = 0; rank < shares.size() && rank < 8; ++rank)
      text += (rank ? ", " : " ") + format("%lld of %.3g GFLOP", static_cast<long long>(shares[rank].tensors),
                                           shares[rank].flops / 1e9);
    text += shares.size() > 8 ? ", ..\n" : "\n";
  }
  return text;
}

void write_dealt(JsonWriter& json, const Program& program) {
  json.name("dealt").begin_object();
  for (const auto& [axis, shares] : dealt_by_axis(program)) {
    json.name(axis).begin_array();
    for (const Share& share : shares)
      json.begin_object().member("tensors", share.tensors).member("flops", share.flops).end_object();
    json.end_array();
  }
  json.end_object();
}

}  // namespace prun
