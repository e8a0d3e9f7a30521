#include "placement/pack_whole.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "ops/base_ops.hpp"
#include "program/passes.hpp"

namespace prun {

// ------------------------------------------------------------------- flat ranges

Id FlatRanges::add(const char* kind, std::vector<Id> operands, std::span<const AttrValue> attrs) {
  return program_.add_op(bucket_.segment, FunctionKind::update, Part::input, kind, std::move(operands),
                         attrs);
}

Id FlatRanges::exchange(const char* kind, Id from, Id to) {
  const AttrValue along[] = {axis_attr(bucket_.axis), {"dim", 0}, {"parts", static_cast<double>(parts_)}};
  return add(kind, {from, to}, along);
}

Id FlatRanges::add_range(const Value& like, const char* suffix, bool own) {
  Value value;
  value.name = detail::concat(like.name, suffix);
  value.dtype = like.dtype;
  value.segment = bucket_.segment;
  value.placement.resize(program_.mesh().size());
  value.dims = {{"packed", bucket_.elements}};
  if (own)
    value.placement = shards_over(program_, bucket_.axis);
  else
    value.dims = {{"parts", parts_}, {"packed", bucket_.elements / parts_}};
  return program_.add_value(std::move(value));
}

Id FlatRanges::gathered(Id own) {
  if (parts_ == 1) return own;
  const auto [entry, fresh] = gathered_.try_emplace(own, none);
  if (!fresh) return entry->second;
  entry->second = add_range(Value(program_.value(own)), ".together", false);
  exchange(base_ops::all_gather, own, entry->second);
  part_ = own;
  return entry->second;
}

// ------------------------------------------------------------------- dealt loads

std::size_t deal(std::vector<double>& loads, std::int64_t layers, double cost) {
  std::vector<double> best;
  std::size_t first = 0;
  for (std::size_t begin = 0; begin < loads.size(); ++begin) {
    std::vector<double> then = loads;
    for (std::int64_t layer = 0; layer < layers; ++layer)
      then[(begin + static_cast<std::size_t>(layer)) % loads.size()] += cost;
    if (best.empty() ||
        *std::max_element(then.begin(), then.end()) < *std::max_element(best.begin(), best.end()))
      best = std::move(then), first = begin;
  }
  loads = std::move(best);
  return first;
}

namespace {

// ------------------------------------------------------------------- pack whole

bool marks_any(const Name (&names)[max_marks]) { return !names[0].empty(); }

// Returns true if both values have the same shape and shards; a gradient counts as reduced.
bool lie_alike(const Program& program, const Value& a, const Value& b) {
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if ((a.on(axis).is_sharded() || b.on(axis).is_sharded()) && a.on(axis) != b.on(axis)) return false;
  return a.dims == b.dims;
}

// Returns true if the op is elementwise over values shaped and sharded like the parameter, with scalars
// common to all parameters.
bool is_flat(const Program& program, Id parameter, Id id) {
  const Op& op = program.op(id);
  if (op.exchange() || op.has_attr("axis")) return false;
  OpShape shape = program.shape(op);
  raise(op.def->rule(&shape));
  if (marks_any(shape.wholes) || marks_any(shape.sums) || marks_any(shape.maxes)) return false;
  const Value& whole = program.value(parameter);
  return std::all_of(op.operands.begin(), op.operands.end(), [&](Id operand) {
    if (operand == none) return true;
    const Value& value = program.value(operand);
    if (value.role == Role::runtime) return value.dims.empty();
    if (value.own_shape) return false;  // never sharded
    return value.block > 1 || lie_alike(program, value, whole);
  });
}

class WholeUpdates {
 public:
  WholeUpdates(Program& program, const Bucket& bucket, std::span<const Update> updates, DealtLoads& loads)
      : program_(program), bucket_(bucket), loads_(loads), ranges_(program, bucket) {
    for (std::size_t m = 0; m < updates.size(); ++m) {
      members_.emplace_back();
      members_.back().parameter = bucket.parameters[m];
      members_.back().ops = updates[m].ops;
    }
    for (Member& member : members_) map_own(member);
  }

  void run() {
    for (;;) {
      for (Member& member : members_)
        while (member.next < member.ops.size() && !is_next_flat(member)) copy_whole(member);
      if (members_.front().next >= members_.front().ops.size()) break;
      add_flat();
      for (Member& member : members_) ++member.next;
    }
  }

 private:
  struct Member {
    Id parameter = none;
    std::vector<Id> ops;
    std::size_t next = 0;
    std::map<Id, Id> flat;      // flat shards by the first member's values
    std::map<Id, Id> together;  // tensors taken from gathered flat values, by the member's value
    std::map<Id, bool> dealt;   // results of ops on full tensors; true: only one rank has them
  };

  std::size_t number_of(const Member& member) const {
    return static_cast<std::size_t>(&member - members_.data());
  }
  std::int64_t offset_of(const Member& member) const { return bucket_.offsets[number_of(member)]; }

  void map_own(Member& member) {
    const Value& parameter = program_.value(member.parameter);
    member.flat[member.parameter] = bucket_.own_parameters;
    member.flat[parameter.gradient] = bucket_.own_gradients;
    if (bucket_.master != none) member.flat[parameter.master] = bucket_.master;
    std::size_t next = 0;
    for (const Id state : parameter.states)
      if (!program_.value(state).own_shape) member.flat[state] = bucket_.states.at(next++);
    for (std::size_t i = 0; i < parameter.scales.size(); ++i)
      if (parameter.scales[i] != none) member.flat[parameter.scales[i]] = bucket_.scales.at(i);
  }

  bool is_next_flat(const Member& member) const {
    return is_flat(program_, member.parameter, member.ops[member.next]);
  }

  // ------------------------------------------------------------- ops of whole tensors

  void copy_whole(Member& member) {
    const Id id = member.ops[member.next++];
    std::vector<Id> operands = program_.op(id).operands;
    bool from_dealt = false;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (operands[i] == none) continue;
      if (const auto dealt = member.dealt.find(operands[i]); dealt != member.dealt.end())
        from_dealt |= dealt->second && program_.op(id).access(i) == Access::read;
      if (member.flat.count(operands[i]) == 0) continue;
      if (program_.op(id).access(i) != Access::read) refuse_change(id, i);
      operands[i] = whole(member, operands[i]);
    }
    const bool moves = program_.op(id).exchange() || program_.op(id).has_attr("axis");
    const bool deals = program_.op(id).def->dealt && ranges_.any_part() != none;
    if (from_dealt && !moves) throw_dealt(id);
    if (deals) operands[1] = ranges_.any_part();
    const Id made = program_.add_copy(id, FunctionKind::update, operands, none);
    if (deals) deal_op(made);
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (operands[i] != none && program_.op(made).access(i) == Access::write)
        member.dealt[operands[i]] = deals || from_dealt;
  }

  [[noreturn]] void refuse_change(Id id, std::size_t i) const {
    const Op& op = program_.op(id);
    throw_error(
        ErrorCode::unsupported, "cannot shard '", program_.value(op.operands[i]).name, "': op '", op.kind(),
        "' changes it and is not elementwise; let it write a direction, and an elementwise op take the step");
  }

  [[noreturn]] void throw_dealt(Id id) const {
    throw_error(ErrorCode::unsupported, "cannot run op '", program_.op(id).kind(),
                "' on an assigned result: ranks that it is not assigned to have zeros; do it before, or "
                "after, in an elementwise op");
  }

  // Returns a member's full tensor, gathered if it is sharded.
  Id whole(Member& member, Id value) {
    const Id flat = member.flat.at(value);
    if (value == member.parameter && !gathers_parameters(program_, bucket_)) return value;
    const auto [entry, fresh] = member.together.try_emplace(value, none);
    if (!fresh) return entry->second;
    const Id all = ranges_.gathered(flat);
    Value copy = program_.value(value);
    copy.name += ".together";
    copy.role = Role::activation;
    copy.bucket = -1;
    copy.view.reset();
    copy.gradient = copy.master = none;
    copy.states.clear();
    // The gradient has been reduced by now.
    complete_sums(copy.placement);
    entry->second = program_.add_value(std::move(copy));
    const AttrValue offset{"offset", static_cast<double>(offset_of(member))};
    ranges_.add(base_ops::unpack, {all, entry->second}, std::span(&offset, 1));
    return entry->second;
  }

  void deal_op(Id id) {
    const Op& op = program_.op(id);
    std::vector<double>& loads = loads_[bucket_.axis];
    loads.resize(static_cast<std::size_t>(ranges_.parts()), 0);
    const double cost = op.cost(program_.local_shape(op)).flops;
    const std::size_t first = deal(loads, program_.segment(bucket_.segment).repeat, cost);
    program_.set_attr(id, "first", static_cast<double>(first));
    program_.set_attr(id, "ranks", static_cast<double>(ranges_.parts()));
  }

  // ------------------------------------------------------------- ops that are alike for all elements

  // Adds one op on the shard in place of the members' next ones.
  void add_flat() {
    const Op op = program_.op(members_.front().ops[members_.front().next]);
    std::vector<Id> operands(op.operands.size(), none);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Id value = op.operands[i];
      if (value == none) continue;
      if (program_.value(value).role == Role::runtime)
        operands[i] = value;
      else if (const auto known = members_.front().flat.find(value); known != members_.front().flat.end())
        operands[i] = known->second;
      else
        operands[i] = op.access(i) == Access::write ? made(i) : packed(i);
    }
    std::vector<AttrValue> attrs;
    for (std::size_t i = 0; i < op.attrs.size(); ++i)
      attrs.push_back({op.def->attrs[i].name,
                       op.def->attrs[i].real ? op.attrs[i].f : static_cast<double>(op.attrs[i].i)});
    ranges_.add(op.def->kind, operands, attrs);
  }

  Id operand_of(const Member& member, std::size_t i) const {
    return program_.op(member.ops[member.next]).operands[i];
  }

  Id made(std::size_t i) {
    const Id flat = ranges_.add_range(Value(program_.value(operand_of(members_.front(), i))), ".own", true);
    for (Member& member : members_) member.flat[operand_of(member, i)] = flat;
    return flat;
  }

  // Returns the rank's shard of what the members' ops on full tensors wrote.
  Id packed(std::size_t i) {
    const Value like = program_.value(operand_of(members_.front(), i));
    const bool dealt = members_.front().dealt[operand_of(members_.front(), i)];
    const Id own = ranges_.add_range(like, ".own", true),
             into = dealt ? ranges_.add_range(like, ".dealt", false) : own;
    ranges_.add(base_ops::blank, {into});
    for (Member& member : members_) {
      const AttrValue offset{"offset", static_cast<double>(offset_of(member))};
      ranges_.add(base_ops::pack, {operand_of(member, i), into}, std::span(&offset, 1));
      member.flat[operand_of(member, i)] = own;
    }
    if (dealt) ranges_.exchange(base_ops::reduce_scatter, into, own);
    return own;
  }

  Program& program_;
  const Bucket& bucket_;
  DealtLoads& loads_;
  FlatRanges ranges_;
  std::vector<Member> members_;
};

}  // namespace

std::string flat_form(const Program& program, Id parameter, const Update& update) {
  std::string form;
  for (const Id id : update.ops) {
    if (!is_flat(program, parameter, id)) continue;
    const Op& op = program.op(id);
    form += op.kind();
    for (std::size_t i = 0; i < op.attrs.size(); ++i) {
      char number[32];
      std::snprintf(number, sizeof number, " %a", program.attr(id, op.def->attrs[i].name));
      form += number;
    }
    for (const Id operand : op.operands)
      if (operand != none && program.value(operand).role == Role::runtime)
        form += " " + std::to_string(operand);
    form += "\n";
  }
  return form;
}

void pack_whole_updates(Program& program, const Bucket& bucket, std::span<const Update> updates,
                        DealtLoads& loads) {
  WholeUpdates(program, bucket, updates, loads).run();
}

}  // namespace prun
