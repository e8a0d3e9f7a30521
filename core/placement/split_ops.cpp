#include "placement/split_ops.hpp"

#include <algorithm>

#include "base/require.hpp"

namespace prun {
namespace {

// Requests that a dimension be sharded on axes of more than one rank.
struct Wish {
  Name dim;
  std::vector<std::int32_t> axes;
};

std::vector<Wish> wishes_of(const Program& program) {
  std::vector<Wish> wishes;
  for (const Split& split : program.requests().splits) {
    if (program.mesh().extent(split.axis) == 1 || split.scope == SplitScope::ops) continue;
    auto wish = std::find_if(wishes.begin(), wishes.end(), [&](const Wish& w) { return w.dim == split.dim; });
    if (wish == wishes.end()) wish = wishes.insert(wish, {split.dim, {}});
    wish->axes.push_back(static_cast<std::int32_t>(split.axis));
  }
  return wishes;
}

// Splits one op; it is also the context behind SplitApi. It puts the new ops before the one that they
// replace.
class OpSplitter {
 public:
  OpSplitter(Program& program, Id op) : program_(program), id_(op), op_(program.op(op)) {}

  // Splits the op if it can be split, and says whether it could.
  bool run(const Wish& wish) {
    const OpShape shape = program_.shape(op_);
    SplitApi api{};
    api.struct_size = sizeof api;
    api.context = this;
    api.shape = &shape;
    api.dim = wish.dim;
    api.axes = {wish.axes.data(), wish.axes.size()};
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

// Returns the axes that are requested to split a dimension, or none.
Wish wish_for(const Program& program, const Name& dim) {
  for (Wish& wish : wishes_of(program))
    if (wish.dim == dim) return std::move(wish);
  return {dim, {}};
}

void take_apart(Program& program, Id op) {
  OpShape shape = program.shape(program.op(op));
  raise(program.op(op).def->rule(&shape));
  for (const Name& whole : shape.wholes)
    if (!whole.empty() && OpSplitter(program, op).run(wish_for(program, whole))) return;
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
  for (const Wish& wish : wishes_of(program))
    for (Id segment = 0; segment < program.segment_count(); ++segment)
      for (int kind = 0; kind < function_kinds; ++kind) {
        const std::vector<Id> ops = program.segment(segment).ops(static_cast<FunctionKind>(kind));
        for (Id op : ops)
          if (program.op(op).def->split) OpSplitter(program, op).run(wish);
      }
}

}  // namespace prun
