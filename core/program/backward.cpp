// Differentiates each segment in reverse mode: forward's ops are visited in reverse, and each gives its
// gradient ops.
#include <algorithm>
#include <map>
#include <set>

#include "base/require.hpp"
#include "ops/base_ops.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// Marks the results of an op that reads a wanted value.
void mark_results(const Program& program, const Op& op, std::set<Id>& wanted) {
  bool flows = false;
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    flows |= op.operands[i] != none && op.access(i) == Access::read && wanted.count(op.operands[i]);
  for (std::size_t i = 0; flows && i < op.operands.size(); ++i)
    if (op.operands[i] != none && op.access(i) == Access::write &&
        is_float(program.value(op.operands[i]).dtype))
      wanted.insert(op.operands[i]);
}

// Returns every value of a segment whose gradient is needed: those that a trained parameter or the incoming
// value flows into.
std::set<Id> wanted_values(const Program& program, Id segment) {
  std::set<Id> wanted;
  for (Id id : program.parameters())
    if (!program.value(id).frozen) wanted.insert(id);
  if (program.segment(segment).incoming != none) wanted.insert(program.segment(segment).incoming);
  for (const CarriedValue& carried : program.carried())
    if (carried.gradient != none && program.value(carried.value).segment < segment)
      wanted.insert(carried.value);
  for (Id id : program.segment(segment).ops(FunctionKind::forward))
    mark_results(program, program.op(id), wanted);
  return wanted;
}

// Returns the accumulator of a parameter's gradient, which is made where there is none yet.
Id accumulator_of(Program& program, Id parameter) {
  if (program.value(parameter).gradient == none) {
    Value gradient;
    gradient.name = program.value(parameter).name + ".gradient";
    gradient.role = Role::gradient;
    gradient.dtype = program.precision().gradient;
    gradient.dims = program.value(parameter).dims;
    gradient.part = program.value(parameter).part;
    gradient.segment = program.value(parameter).segment;
    const Id created = program.add_value(std::move(gradient));
    program.value(parameter).gradient = created;
  }
  return program.value(parameter).gradient;
}

// Collects the gradients that values of a segment get, and sums them in the order of arrival.
class GradientSums {
 public:
  GradientSums(Program& program, Id segment) : program_(program), segment_(segment) {}

  void add(Id value, Id gradient) { arrived_[value].push_back(gradient); }
  bool has(Id value) const { return arrived_.count(value) != 0; }

  // Returns the sum of what has arrived so far, or none.
  Id total(Id value) {
    const auto found = arrived_.find(value);
    if (found == arrived_.end()) return none;
    std::vector<Id>& parts = found->second;
    while (parts.size() > 1) {
      const Id pair[] = {parts[0], parts[1]};
      const Id sum = program_.add_op_creating(segment_, FunctionKind::backward, Part::input, base_ops::add,
                                              pair, {}, none)[0];
      parts.erase(parts.begin());
      parts[0] = sum;
    }
    return parts[0];
  }

 private:
  Program& program_;
  Id segment_;
  std::map<Id, std::vector<Id>> arrived_;
};

// Differentiates one segment; it is also the context behind GradientApi.
class SegmentBackward {
 public:
  SegmentBackward(Program& program, Id segment)
      : program_(program),
        segment_(segment),
        wanted_(wanted_values(program, segment)),
        sums_(program, segment) {}

  void run() {
    seed();
    seed_carried();
    const std::vector<Id> forward = program_.segment(segment_).ops(FunctionKind::forward);
    for (auto id = forward.rbegin(); id != forward.rend(); ++id) visit(*id);
    close();
  }

  Id operand(int i) const { return program_.op(current_).operands[static_cast<std::size_t>(i)]; }

  Id arrived(int i) {
    const Id value = operand(i);
    return value == none ? none : sums_.total(value);
  }

  bool wanted(int i) const { return operand(i) != none && wanted_.count(operand(i)) != 0; }

  Id accumulator(int i) {
    const Id id = operand(i);
    require(id != none && program_.value(id).role == Role::parameter, "op '", program_.op(current_).kind(),
            "' adds into the gradient of a value that is no parameter");
    return accumulator_of(program_, id);
  }

  // Emits an op; `operands` end with the values of fresh() since the last emit(): their shapes are inferred
  // here.
  void emit(Part part, std::string_view kind, std::vector<Id> operands, std::span<const AttrValue> attrs) {
    require(operands.size() >= fresh_.size() && std::equal(fresh_.rbegin(), fresh_.rend(), operands.rbegin()),
            "a gradient emits the fresh values it asked for as the last operands");
    if (fresh_.empty()) {
      program_.add_op(segment_, FunctionKind::backward, part, kind, std::move(operands), attrs);
      return;
    }
    operands.resize(operands.size() - fresh_.size());
    const std::vector<Id> created =
        program_.add_op_creating(segment_, FunctionKind::backward, part, kind, operands, attrs, none);
    for (std::size_t i = 0; i < fresh_.size(); ++i) resolved_[fresh_[i]] = created.at(i);
    fresh_.clear();
  }

  // Returns a stand-in until emit() knows the shape.
  Id fresh() {
    fresh_.push_back(next_fresh_--);
    return fresh_.back();
  }

  void contribute(int i, Id gradient) {
    if (i < 0 || static_cast<std::size_t>(i) >= program_.op(current_).operands.size())
      throw_error(ErrorCode::bad_input, "op '", program_.op(current_).kind(),
                  "': its gradient gives one for operand ", i, ", and there are ",
                  program_.op(current_).operands.size(), ", from 0 on");
    if (const auto known = resolved_.find(gradient); known != resolved_.end()) gradient = known->second;
    if (operand(i) != none && gradient != none) sums_.add(operand(i), gradient);
  }

  void bind(int i, Id value) {
    if (value != none) program_.replace_operand(current_, static_cast<std::size_t>(i), value);
  }

  Id keep(int i) { return program_.add_result(current_, static_cast<std::size_t>(i)); }

  double attr(std::string_view name) const { return program_.attr(current_, name); }

 private:
  // The next segment writes this gradient, even where nothing of this segment is trained.
  void seed() {
    const Id out = program_.segment(segment_).outgoing;
    if (out == none) return;
    Value gradient = program_.value(out);
    gradient.name = "out.gradient";
    const Id id = program_.add_value(std::move(gradient));
    program_.segment(segment_).outgoing_gradient = id;
    if (wanted_.count(out)) sums_.add(out, id);
  }

  // The sum of the gradients from the segments behind comes first.
  void seed_carried() {
    for (const CarriedValue& carried : program_.carried())
      if (program_.value(carried.value).segment == segment_ && wanted_.count(carried.value) != 0)
        sums_.add(carried.value, carried.gradient);
  }

  void visit(Id id) {
    current_ = id;
    const Op op = program_.op(id);
    bool reached = op.def->effect == Effect::update;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      reached |= op.access(i) == Access::write && sums_.has(op.operands[i]);
    bool needed = false;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      needed |= op.access(i) == Access::read && op.operands[i] != none && wanted_.count(op.operands[i]);
    if (!reached || !needed) return;
    if (!op.def->gradient)
      throw_error(ErrorCode::unsupported, "cannot train parameters through op '", op.kind(), "' of segment '",
                  program_.segment(segment_).name, "': it has no gradient; give it one, or freeze them");
    raise(op.def->gradient(&api()));
  }

  // Adds the gradient of a parameter that an op uses as it is (added, scaled, ...), a plain value, into the
  // parameter's accumulator.
  void accumulate_plain_uses() {
    for (Id id : program_.parameters())
      if (const Id gradient = sums_.total(id); gradient != none)
        program_.add_op(segment_, FunctionKind::backward, Part::weight, base_ops::accumulate,
                        {gradient, accumulator_of(program_, id)}, {});
  }

  // Adds to the gradient for the earlier segment that carries the value: in a schedule's backward of inputs,
  // since that segment's own backward waits for it.
  void add_to_carried() {
    const std::vector<CarriedValue> all = program_.carried();
    for (const CarriedValue& carried : all)
      if (program_.value(carried.value).segment < segment_ && sums_.has(carried.value))
        program_.add_op(segment_, FunctionKind::backward, Part::input, base_ops::accumulate,
                        {sums_.total(carried.value), carried.gradient}, {});
  }

  // The gradient of the segment's input goes to the segment before; it needs a value of its own.
  void close() {
    accumulate_plain_uses();
    add_to_carried();
    SegmentData& segment = program_.segment(segment_);
    if (segment.incoming == none) return;
    Id gradient = sums_.total(segment.incoming);
    if (gradient == none)
      throw_error(ErrorCode::bad_input, "segment '", segment.name, "' takes a value in but never uses it");
    if (gradient == segment.outgoing_gradient) {
      const AttrValue once{"factor", 1.0};
      gradient = program_.add_op_creating(segment_, FunctionKind::backward, Part::input, base_ops::scale,
                                          std::span(&gradient, 1), std::span(&once, 1), none)[0];
    }
    program_.segment(segment_).incoming_gradient = gradient;
  }

  const GradientApi& api() {
    static const auto self = [](void* context) -> SegmentBackward& {
      return *static_cast<SegmentBackward*>(context);
    };
    api_.struct_size = sizeof api_;
    api_.context = this;
    api_.operand = [](void* c, std::int32_t i) { return self(c).operand(i); };
    api_.arrived = [](void* c, std::int32_t i) { return self(c).arrived(i); };
    api_.wanted = [](void* c, std::int32_t i) { return self(c).wanted(i); };
    api_.accumulator = [](void* c, std::int32_t i) { return self(c).accumulator(i); };
    api_.emit = [](void* c, Part part, Text kind, Array<Id> operands, Array<AttrValue> attrs) {
      return guard([&] {
        self(c).emit(part, kind.view(), {operands.begin(), operands.end()}, {attrs.data, attrs.size});
      });
    };
    api_.fresh = [](void* c, Text) { return self(c).fresh(); };
    api_.contribute = [](void* c, std::int32_t i, Id gradient) {
      return guard([&] { self(c).contribute(i, gradient); });
    };
    api_.bind = [](void* c, std::int32_t i, Id value) { return guard([&] { self(c).bind(i, value); }); };
    api_.attr = [](void* c, Text name) { return self(c).attr(name.view()); };
    api_.keep = [](void* c, std::int32_t i, Id* result) { return guard([&] { *result = self(c).keep(i); }); };
    return api_;
  }

  Program& program_;
  Id segment_;
  Id current_ = none;
  const std::set<Id> wanted_;
  GradientSums sums_;
  std::map<Id, Id> resolved_;
  std::vector<Id> fresh_;
  Id next_fresh_ = none - 1;
  GradientApi api_{};
};

// Adds a gradient to each carried value that can have one.
void add_carried_gradients(Program& program) {
  for (CarriedValue& carried : program.carried()) {
    Value gradient = program.value(carried.value);
    if (!is_float(gradient.dtype)) continue;
    gradient.name += ".gradient";
    carried.gradient = program.add_value(std::move(gradient));
  }
}

// Checks that each sum has a summand: no other op writes it.
void check_carried_gradients(const Program& program) {
  std::set<Id> added;
  for (Id id = 0; id < program.segment_count(); ++id)
    for (const Id op : program.segment(id).ops(FunctionKind::backward))
      if (program.is_carried_gradient(program.op(op).operands.back()))
        added.insert(program.op(op).operands.back());
  for (const CarriedValue& carried : program.carried())
    if (carried.gradient != none && added.count(carried.gradient) == 0)
      throw_error(ErrorCode::bad_input, "cannot carry '", program.value(carried.value).name,
                  "' from segment '", program.segment(program.value(carried.value).segment).name,
                  "': no later segment gives it a gradient; let an op of one read it, or do not carry it");
}

}  // namespace

void add_backward(Program& program) {
  add_carried_gradients(program);
  for (Id id = program.step_segment() + 1; id < program.segment_count(); ++id)
    SegmentBackward(program, id).run();
  check_carried_gradients(program);
}

void split_backward(Program& program) {
  for (Id id = 0; id < program.segment_count(); ++id) {
    std::vector<Id> input;
    for (Id op : program.segment(id).ops(FunctionKind::backward)) {
      if (program.op(op).part == Part::input) {
        input.push_back(op);
      } else {
        program.op(op).function = FunctionKind::backward_weight;
        program.segment(id).ops(FunctionKind::backward_weight).push_back(op);
      }
    }
    program.segment(id).ops(FunctionKind::backward) = std::move(input);
  }
}

}  // namespace prun
