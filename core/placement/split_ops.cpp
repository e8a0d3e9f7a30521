#include "placement/split_ops.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "base/require.hpp"
#include "ops/base_ops.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- split ops

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

namespace {

// ------------------------------------------------------------------- direct exchanges

// Sending a piece of this size separately takes less time than copying it.
constexpr std::int64_t least_bytes = std::int64_t{1} << 20;

class Rewriter {
 public:
  using Users = std::map<Id, std::vector<Id>>;

  explicit Rewriter(Program& program) : program_(program) {}

  void run(Id segment) {
    Users users;  // ops by the value they use; its writer comes first
    for (const std::vector<Id>& function : program_.segment(segment).functions)
      for (const Id op : function)
        for (const Id value : program_.op(op).operands)
          if (value != none) users[value].push_back(op);
    const std::vector<Swap> swaps = swaps_in_order(users);
    std::erase_if(users, [&](const auto& entry) { return !is_between(entry.second); });
    for (const Swap& swap : swaps) join(swap);
    for (const auto& [blocks, ops] : users) join(blocks, ops[0], ops[1]);
  }

 private:
  // An all-to-all and the copies before and after it, with the values between them.
  struct Swap {
    Id block, exchange, unblock, blocks, swapped;
  };

  // Finds all-to-alls whose copies keep all bytes in order.
  std::vector<Swap> swaps_in_order(const Users& users) const {
    std::vector<Swap> swaps;
    for (const auto& [blocks, ops] : users) {
      if (ops.size() != 2 || !is(ops[1], base_ops::all_to_all) ||
          !copies_in_order(ops[0], base_ops::block, 0))
        continue;
      const Id swapped = program_.op(ops[1]).operands[1];
      const std::vector<Id>& behind = users.at(swapped);
      if (behind.size() != 2 || !copies_in_order(behind[1], base_ops::unblock, 1)) continue;
      if (program_.op(ops[0]).function == program_.op(behind[1]).function)
        swaps.push_back({ops[0], ops[1], behind[1], blocks, swapped});
    }
    return swaps;
  }

  bool is(Id op, std::string_view kind) const { return program_.op(op).is(kind); }

  // Returns true if the op makes blocks, or a value from blocks, without reordering bytes. Operand `value` is
  // the one that is not in blocks.
  bool copies_in_order(Id op, std::string_view kind, std::size_t value) const {
    return is(op, kind) && places_before(program_.op(op).operands[value],
                                         static_cast<std::size_t>(program_.attr(op, "dim"))) == 1;
  }

  void join(const Swap& swap) {
    const Op from = program_.op(swap.block), to = program_.op(swap.unblock);
    const AttrValue attrs[] = {{"axis", program_.attr(swap.exchange, "axis")},
                               {"dim", program_.attr(swap.exchange, "dim")},
                               {"parts", program_.attr(swap.exchange, "parts")},
                               {"to", program_.attr(swap.exchange, "to")},
                               {"direct", 1}};
    program_.add_op(from.segment, from.function, Part::input, base_ops::all_to_all,
                    {from.operands[0], to.operands[1]}, attrs, swap.exchange);
    for (const Id op : {swap.block, swap.exchange, swap.unblock}) program_.erase_op(op);
    for (const Id between : {swap.blocks, swap.swapped}) program_.forget_value(between);
  }

  // Returns true if the value between these two ops holds nothing but the blocks of a collective.
  bool is_between(const std::vector<Id>& ops) const {
    if (ops.size() != 2) return false;
    const Op &writer = program_.op(ops[0]), &reader = program_.op(ops[1]);
    const bool gathers = writer.is(base_ops::all_gather) && reader.is(base_ops::unblock);
    const bool scatters = writer.is(base_ops::block) &&
                          (reader.is(base_ops::reduce_scatter) || reader.is(base_ops::reduce_scatter_max));
    if ((!gathers && !scatters) || writer.function != reader.function) return false;
    return lies_well(gathers ? writer.operands[0] : reader.operands[1],
                     static_cast<std::size_t>(program_.attr(ops[0], "dim")));
  }

  void join(Id blocks, Id writer, Id reader) {
    const Op from = program_.op(writer), to = program_.op(reader);
    const Id exchange = from.exchange() ? writer : reader;
    const AttrValue attrs[] = {{"axis", program_.attr(exchange, "axis")},
                               {"dim", program_.attr(exchange, "dim")},
                               {"parts", program_.attr(exchange, "parts")},
                               {"direct", 1}};
    program_.add_op(from.segment, from.function, Part::input, program_.op(exchange).kind(),
                    {from.operands[0], to.operands[1]}, attrs, exchange);
    program_.erase_op(writer);
    program_.erase_op(reader);
    program_.forget_value(blocks);
  }

  // Returns true if a rank's blocks are contiguous, or large enough to be sent separately.
  bool lies_well(Id part, std::size_t dim) const {
    const std::int64_t pieces = places_before(part, dim);
    return pieces == 1 || program_.local_bytes(part) >= pieces * least_bytes;
  }

  // Counts the indices of a rank's shard over the dimensions before `dim`.
  std::int64_t places_before(Id value, std::size_t dim) const {
    const std::vector<Dim> dims = program_.local_dims(value);
    std::int64_t places = 1;
    for (std::size_t i = 0; i < dim; ++i) places *= dims[i].extent;
    return places;
  }

  Program& program_;
};

}  // namespace

void exchange_directly(Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment) Rewriter(program).run(segment);
}

}  // namespace prun
