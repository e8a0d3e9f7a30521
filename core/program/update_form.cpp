#include "program/update_form.hpp"

#include <algorithm>
#include <cstdio>

namespace prun {
namespace {

Id number_in(const std::vector<Id>& own, Id value) {
  const auto found = std::find(own.begin(), own.end(), value);
  return found == own.end() || value == none ? none : static_cast<Id>(found - own.begin());
}

// Returns the op of the segment's `update` that writes a value, or none if it comes from elsewhere.
Id writer_of(const Program& program, Id value) {
  for (Id id : program.segment(program.value(value).segment).ops(FunctionKind::update))
    for (std::size_t i = 0; i < program.op(id).operands.size(); ++i)
      if (program.op(id).operands[i] == value && program.op(id).access(i) == Access::write) return id;
  return none;
}

class UpdateReader {
 public:
  // `members` are what updates of whole tensors have of each parameter of a bucket, beside what it packs.
  UpdateReader(const Program& program, std::vector<Id> own, std::vector<Id> members = {})
      : program_(program), members_(std::move(members)) {
    update_.own = std::move(own);
  }

  Update read(Id segment) {
    for (Id id : program_.segment(segment).ops(FunctionKind::update)) {
      const Op& op = program_.op(id);
      if (!touches_own(op)) continue;
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.operands[i] != none && op.access(i) == Access::write && !is_own(op.operands[i]))
          update_.own.push_back(op.operands[i]);
      update_.ops.push_back(id);
      update_.form += text(id) + "\n";
    }
    return std::move(update_);
  }

 private:
  bool is_own(Id value) const { return number_in(update_.own, value) != none; }

  bool touches_own(const Op& op) const {
    return std::any_of(op.operands.begin(), op.operands.end(), [&](Id operand) { return is_own(operand); });
  }

  std::string text(Id id) const {
    const Op& op = program_.op(id);
    std::string text(op.kind());
    for (std::size_t i = 0; i < op.attrs.size(); ++i) {
      char number[32];
      std::snprintf(number, sizeof number, " %a", program_.attr(id, op.def->attrs[i].name));
      text += number;
    }
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.access(i) != Access::write || is_own(op.operands[i])) text += ", " + origin(op.operands[i]);
    return text;
  }

  // Says what the value is to the update, not which value it is.
  std::string origin(Id value) const {
    if (value == none) return "-";
    if (is_own(value)) return "own " + std::to_string(number_in(update_.own, value));
    if (const Id member = number_in(members_, value); member != none)
      return "member " + std::to_string(member);
    const Id writer = program_.value(value).role == Role::activation ? writer_of(program_, value) : none;
    return writer == none ? "value " + std::to_string(value) : "(" + text(writer) + ")";
  }

  const Program& program_;
  const std::vector<Id> members_;
  Update update_;
};

// Lists values; `whole` are those beside the own parts of a bucket.
std::vector<Id> listed(Id parameter, Id master, Id gradient, const std::vector<Id>& states,
                       const std::vector<Id>& scales, std::pair<Id, Id> whole = {none, none}) {
  std::vector<Id> own = {parameter, master, gradient, whole.first, whole.second};
  own.insert(own.end(), states.begin(), states.end());
  own.insert(own.end(), scales.begin(), scales.end());
  return own;
}

// Carries one parameter's edits to ops of another value.
class Carrier {
 public:
  Carrier(Program& program, Id parameter, const Update& edited, const Update& fresh)
      : program_(program), parameter_(parameter), edited_(edited), fresh_(fresh) {}

  void carry_attributes() {
    std::vector<Id> ops = edited_.ops;
    std::erase_if(ops, [&](Id op) { return program_.op(op).exchange() || program_.op(op).def->converts; });
    for (std::size_t i = 0; i < std::max(ops.size(), fresh_.ops.size()); ++i) {
      if (i >= ops.size()) refuse(fresh_.ops[i], "was taken out of");
      if (i >= fresh_.ops.size() || program_.op(ops[i]).def != program_.op(fresh_.ops[i]).def)
        refuse(ops[i], "was added to");
      const Op source = program_.op(ops[i]);
      for (std::size_t a = 0; a < source.attrs.size(); ++a)
        program_.set_attr(fresh_.ops[i], source.def->attrs[a].name,
                          program_.attr(ops[i], source.def->attrs[a].name));
    }
  }

  void run() {
    for (std::size_t i = 0; i < std::max(edited_.ops.size(), fresh_.ops.size()); ++i) {
      if (i >= fresh_.ops.size()) refuse(edited_.ops[i], "was added to");
      if (i >= edited_.ops.size()) refuse(fresh_.ops[i], "was taken out of");
      if (program_.op(edited_.ops[i]).def != program_.op(fresh_.ops[i]).def)
        refuse(edited_.ops[i], "was put into");
      carry(edited_.ops[i], fresh_.ops[i]);
    }
  }

 private:
  void carry(Id from, Id to) {
    const Op source = program_.op(from);
    for (std::size_t i = 0; i < source.attrs.size(); ++i)
      program_.set_attr(to, source.def->attrs[i].name, program_.attr(from, source.def->attrs[i].name));
    for (std::size_t i = 0; i < source.operands.size(); ++i) {
      const Id value = source.operands[i], there = program_.op(to).operands[i];
      const Id number = number_in(edited_.own, value);
      if (number != number_in(fresh_.own, there))
        refuse(from, detail::concat("has another operand '", source.def->operands[i].name, "' in"));
      if (number == none && value != there) program_.replace_operand(to, i, shared(value, from, i, to));
    }
  }

  // Returns a scalar that the update shares with others, where the op `to` can read it. What is computed in
  // `update` itself is computed again in another segment.
  Id shared(Id value, Id from, std::size_t i, Id to) {
    if (value == none || program_.value(value).role == Role::runtime) return value;
    const Id writer = program_.value(value).dims.empty() ? writer_of(program_, value) : none;
    if (writer == none)
      refuse(from, detail::concat("has another operand '", program_.op(from).def->operands[i].name, "' in"));
    if (program_.value(value).segment == program_.op(to).segment) return value;
    return copied(writer, value, to);
  }

  Id copied(Id writer, Id value, Id to) {
    const Op op = program_.op(writer);
    std::vector<Id> operands, results;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.access(i) == Access::write)
        results.push_back(op.operands[i]);
      else
        operands.push_back(shared(op.operands[i], writer, i, to));
    }
    std::vector<AttrValue> attrs;
    for (std::size_t i = 0; i < op.attrs.size(); ++i)
      attrs.push_back({op.def->attrs[i].name, program_.attr(writer, op.def->attrs[i].name)});
    const std::vector<Id> made = program_.add_op_creating(program_.op(to).segment, FunctionKind::update,
                                                          op.part, op.kind(), operands, attrs, to);
    return made[static_cast<std::size_t>(std::find(results.begin(), results.end(), value) - results.begin())];
  }

  [[noreturn]] void refuse(Id op, const std::string& what) const {
    const Value& parameter = program_.value(parameter_);
    throw_error(ErrorCode::unsupported, "cannot edit the update of parameter '",
                program_.segment(parameter.segment).name, ".", parameter.name, "': op '",
                program_.op(op).kind(), "' ", what,
                " it, and the parameter is sharded or on two stages of a pipeline; change only attributes "
                "and scalar operands of the optimizer's ops");
  }

  Program& program_;
  Id parameter_;
  const Update &edited_, &fresh_;
};

// Returns whether an op of `settle` does what one of `update` does, to the same values but for those that
// `settle` makes.
bool stands_for(const Program& program, Id settling, Id update) {
  const Op &is = program.op(settling), &was = program.op(update);
  bool same = is.def == was.def;
  for (std::size_t i = 0; same && i < is.operands.size(); ++i)
    same = is.operands[i] == was.operands[i] ||
           (is.operands[i] != none && program.value(is.operands[i]).role == Role::activation);
  for (std::size_t i = 0; same && i < is.attrs.size(); ++i)
    same = program.attr(settling, is.def->attrs[i].name) == program.attr(update, is.def->attrs[i].name);
  return same;
}

}  // namespace

void check_settled(const Program& program) {
  for (Id id = program.step_segment() + 1; id < program.segment_count(); ++id) {
    const SegmentData& segment = program.segment(id);
    const std::vector<Id>& settling = segment.ops(FunctionKind::settle);
    if (settling.empty() != segment.ops(FunctionKind::speculate).empty())
      throw_error(ErrorCode::bad_input, "segment '", segment.name,
                  "' has ops in one of `speculate` and `settle`; write both, or neither");
    auto at = settling.begin();
    for (const Id op : segment.ops(FunctionKind::update)) {
      if (settling.empty()) break;
      at = std::find_if(at, settling.end(), [&](Id other) { return stands_for(program, other, op); });
      if (at == settling.end())
        throw_error(ErrorCode::unsupported, "segment '", segment.name, "': op '", program.op(op).kind(),
                    "' of `update` is not in `settle`, which is called instead of it; let strategies that "
                    "edit `update` stand in front of the one that writes `settle`, or keep that from it "
                    "(offload: speculate = \"none\")");
      ++at;
    }
  }
}

Update update_of(const Program& program, Id parameter) {
  const Value& value = program.value(parameter);
  return UpdateReader(program, listed(parameter, value.master, value.gradient, value.states, value.scales))
      .read(value.segment);
}

Update update_of(const Program& program, const Bucket& bucket) {
  std::vector<Id> members = bucket.parameters;
  for (const Id parameter : bucket.parameters) {
    const std::vector<Id>& states = program.value(parameter).states;
    members.insert(members.end(), states.begin(), states.end());
  }
  return UpdateReader(program,
                      listed(bucket.own_parameters, bucket.master, bucket.own_gradients, bucket.states,
                             bucket.scales, {bucket.all_parameters, bucket.all_gradients}),
                      std::move(members))
      .read(bucket.segment);
}

void check_scaled_updates(const Program& program) {
  if (program.find_runtime("loss_scale") == none) return;
  const Id clip = program.find_runtime("clip");
  const auto reads_clip = [&](Id id) {
    const std::vector<Id>& operands = program.op(id).operands;
    return std::find(operands.begin(), operands.end(), clip) != operands.end();
  };
  for (const Id id : program.parameters()) {
    const Value& value = program.value(id);
    if (value.gradient == none) continue;
    const Update update = update_of(program, id);
    if (std::none_of(update.ops.begin(), update.ops.end(), reads_clip))
      throw_error(ErrorCode::unsupported, "cannot scale the loss: no op that updates '",
                  program.segment(value.segment).name, ".", value.name,
                  "' reads the factor that unscales its gradient (UpdateContext::clip); take another "
                  "optimizer plugin, or precision.compute = \"bf16\"");
  }
}

void check_updates(const Program& program) {
  for (const Id id : program.parameters()) {
    const Value& value = program.value(id);
    if (value.gradient == none) continue;
    std::vector<Id> stands_for_it = {id};
    Update update;
    if (value.bucket < 0) {
      update = update_of(program, id);
    } else {
      const Bucket& bucket = program.buckets()[value.bucket];
      stands_for_it = {id, bucket.own_parameters, bucket.all_parameters};
      update = update_of(program, bucket);
    }
    const auto changes = [&](Id number) {
      const Op& op = program.op(number);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.access(i) != Access::read && number_in(stands_for_it, op.operands[i]) != none) return true;
      return false;
    };
    if (std::none_of(update.ops.begin(), update.ops.end(), changes))
      throw_error(ErrorCode::bad_input, "cannot train parameter '", program.segment(value.segment).name, ".",
                  value.name,
                  "': no op of its update changes it; freeze it in phase 'model' (set_parameter), or let the "
                  "optimizer append an op");
  }
}

void carry_edits(Program& program, Id parameter, const Update& edited, const Update& fresh) {
  Carrier(program, parameter, edited, fresh).run();
}

void carry_attributes(Program& program, Id parameter, const Update& edited, const Update& fresh) {
  Carrier(program, parameter, edited, fresh).carry_attributes();
}

}  // namespace prun
