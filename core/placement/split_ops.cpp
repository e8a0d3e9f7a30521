#include "placement/split_ops.hpp"

#include <algorithm>

#include "base/require.hpp"

namespace prun {
namespace {

// A dimension and the axes (of several ranks) that are to split it.
struct SplitRequest {
  Name dim;
  std::vector<std::int32_t> axes;
};

std::vector<SplitRequest> split_requests(const Program& program) {
  std::vector<SplitRequest> requests;
  for (const Split& split : program.requests().splits) {
    if (program.mesh().extent(split.axis) == 1 || split.scope == SplitScope::ops) continue;
    auto request = std::find_if(requests.begin(), requests.end(),
                                [&](const SplitRequest& w) { return w.dim == split.dim; });
    if (request == requests.end()) request = requests.insert(request, {split.dim, {}});
    request->axes.push_back(static_cast<std::int32_t>(split.axis));
  }
  return requests;
}

// Splits one op; the context behind SplitApi. New ops go before the one that they replace.
class OpSplitter {
 public:
  OpSplitter(Program& program, Id op) : program_(program), id_(op), op_(program.op(op)) {}

  // Returns true if the op could be split.
  bool run(const SplitRequest& request) {
    const OpShape shape = program_.shape(op_);
    SplitApi api{};
    api.struct_size = sizeof api;
    api.context = this;
    api.shape = &shape;
    api.dim = request.dim;
    api.axes = {request.axes.data(), request.axes.size()};
    api.operand = [](void* c, std::int32_t i) { return self(c).op_.operands[static_cast<std::size_t>(i)]; };
    api.emit = [](void* c, Text kind, Array<Id> operands, Array<AttrValue> attrs, Id* results,
                  std::uint64_t result_count) {
      return guard([&] {
        self(c).emit(kind.view(), operands, {attrs.data, attrs.size}, {results, result_count});
      });
    };
    raise(op_.def->split(&api));
    if (emitted_) program_.erase_op(id_);
    return emitted_;
  }

 private:
  static OpSplitter& self(void* context) { return *static_cast<OpSplitter*>(context); }

  void emit(std::string_view kind, Array<Id> operands, std::span<const AttrValue> attrs,
            std::span<Id> results) {
    emitted_ = true;
    if (results.empty()) {
      program_.add_op(op_.segment, op_.function, op_.part, kind, {operands.begin(), operands.end()}, attrs,
                      id_);
      return;
    }
    const std::vector<Id> made = program_.add_op_creating(op_.segment, op_.function, op_.part, kind,
                                                          {operands.begin(), operands.end()}, attrs, id_);
    require(made.size() == results.size(), "op '", op_.kind(), "' takes ", results.size(), " results from '",
            kind, "', which has ", made.size());
    std::copy(made.begin(), made.end(), results.begin());
  }

  Program& program_;
  Id id_;
  Op op_;  // a copy: the program grows
  bool emitted_ = false;
};

SplitRequest request_for(const Program& program, const Name& dim) {
  for (SplitRequest& request : split_requests(program))
    if (request.dim == dim) return std::move(request);
  return {dim, {}};
}

void take_apart(Program& program, Id op) {
  OpShape shape = program.shape(program.op(op));
  raise(program.op(op).def->rule(&shape));
  for (const Name& whole : shape.wholes)
    if (!whole.empty() && OpSplitter(program, op).run(request_for(program, whole))) return;
}

}  // namespace

void take_heads_apart(Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    const std::vector<Id> forward = program.segment(segment).ops(FunctionKind::forward);
    for (Id op : forward)
      if (program.op(op).def->split && program.op(op).def->gradient_in_forward) take_apart(program, op);
  }
}

void split_ops(Program& program) {
  for (const SplitRequest& request : split_requests(program))
    for (Id segment = 0; segment < program.segment_count(); ++segment)
      for (int kind = 0; kind < function_kinds; ++kind) {
        const std::vector<Id> ops = program.segment(segment).ops(static_cast<FunctionKind>(kind));
        for (Id op : ops)
          if (program.op(op).def->split) OpSplitter(program, op).run(request);
      }
}

}  // namespace prun
