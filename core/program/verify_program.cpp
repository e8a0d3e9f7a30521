// Checks the rules that every program keeps, whichever pass or plugin edited it last.
#include <set>

#include "program/passes.hpp"
#include "program/update.hpp"

namespace prun {
namespace {

class Verifier {
 public:
  explicit Verifier(const Program& program) : program_(program) {}

  void run() {
    for (Id id = 0; id < program_.segment_count(); ++id) {
      segment_ = id;
      written_.clear();
      if (program_.segment(id).incoming != none) written_.insert(program_.segment(id).incoming);
      for (FunctionKind kind : {FunctionKind::forward, FunctionKind::put_away, FunctionKind::bring_back,
                                FunctionKind::backward, FunctionKind::backward_weight})
        check_function(kind);
      for (FunctionKind kind : {FunctionKind::load, FunctionKind::begin, FunctionKind::zero,
                                FunctionKind::norm, FunctionKind::finish, FunctionKind::diagnose,
                                FunctionKind::update, FunctionKind::periodic, FunctionKind::report})
        check_function(kind);
      check_chain();
    }
    check_uses();
    check_copies();
    check_varying();
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(ErrorCode::bad_input, "program: segment '", program_.segment(segment_).name, "', ",
                detail::concat(parts...));
  }

  void check_function(FunctionKind kind) {
    if (kind == FunctionKind::backward && program_.segment(segment_).outgoing_gradient != none)
      written_.insert(program_.segment(segment_).outgoing_gradient);
    if (kind == FunctionKind::backward)
      for (const CarriedValue& carried : program_.carried())
        if (carried.gradient != none && program_.value(carried.gradient).segment == segment_)
          written_.insert(carried.gradient);
    for (Id id : program_.segment(segment_).ops(kind)) check_op(program_.op(id), kind);
  }

  void check_op(const Op& op, FunctionKind kind) {
    if (op.segment != segment_ || op.function != kind)
      fail("op '", op.kind(), "' is listed in ", name_of(kind), " but says it belongs elsewhere");
    bool changes = false;
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      check_operand(op, i);
      changes |= op.access(i) == Access::update || program_.value(op.operands[i]).role != Role::activation;
    }
    if (op.def->effect == Effect::update && !changes)
      fail("op '", op.kind(), "' is said to change something, but changes nothing");
    check_shape(op);
  }

  void check_operand(const Op& op, std::size_t i) {
    const Value& value = program_.value(op.operands[i]);
    const std::string where = detail::concat(name_of(op.function), ", op '", op.kind(), "', operand '",
                                             op.def->operands[i].name, "' ('", value.name, "')");
    if (value.role != Role::activation) {
      if (value.segment != segment_ && program_.segment(value.segment).repeat != 1)
        fail(where, " belongs to segment '", program_.segment(value.segment).name, "', which repeats");
      return;
    }
    if (value.segment != segment_) return check_carried(op, i, where);
    if (op.access(i) != Access::write) {
      if (!written_.count(op.operands[i])) fail(where, " is read before anything wrote it");
    } else if (!written_.insert(op.operands[i]).second) {
      fail(where, " is written twice");
    }
  }

  // Forward reads what an earlier segment carries, and backward adds to its gradient.
  void check_carried(const Op& op, std::size_t i, const std::string& where) const {
    const Id id = op.operands[i];
    const bool adds = op.function == FunctionKind::backward && op.access(i) == Access::update;
    const bool right =
        program_.is_carried_gradient(id) ? adds : program_.is_carried(id) && op.access(i) == Access::read;
    if (!right || program_.value(id).segment > segment_)
      fail(where, " is a result of another segment; one in front may carry it (Segment::carry)");
  }

  void check_shape(const Op& op) const {
    const OpShape given = program_.shape(op);
    OpShape right = given;
    const Status status = op.def->rule(&right);
    if (!status.ok()) fail("op '", op.kind(), "': ", status.message);
    for (int i = 0; i < given.count; ++i) {
      const OperandShape &a = given.operand[i], &b = right.operand[i];
      if (a.present &&
          (a.dtype != b.dtype || a.rank != b.rank || !std::equal(a.dims, a.dims + a.rank, b.dims)))
        fail("op '", op.kind(), "', operand '", op.def->operands[i].name,
             "' has not the shape its rule gives");
    }
  }

  void check_chain() const {
    const SegmentData& segment = program_.segment(segment_);
    if (segment_ == program_.step_segment()) return;
    const bool first = segment_ == program_.step_segment() + 1;
    const bool last = segment_ + 1 == program_.segment_count();
    if (!first && segment.incoming == none) fail("nothing comes in from the segment before");
    if (!last && segment.outgoing == none) fail("nothing is handed on to the next segment");
    if (segment.repeat > 1 && (segment.incoming == none || segment.outgoing == none))
      fail("it repeats, so it must take a value in and hand one on");
    if (segment.ops(FunctionKind::forward).empty()) fail("forward is empty");
    if (segment.outgoing != none && program_.is_carried(segment.outgoing))
      fail("'", program_.value(segment.outgoing).name,
           "' is handed on and carried too, and has one place; carry a copy, such as of op 'scale'");
    for (const CarriedValue& carried : program_.carried())
      if (program_.value(carried.value).segment == segment_ && !written_.count(carried.value))
        fail("'", program_.value(carried.value).name, "' is carried, but no op writes it");
    for (const Id handed_on : {segment.outgoing, segment.incoming_gradient})
      if (handed_on != none && !written_.count(handed_on))
        fail("'", program_.value(handed_on).name, "' is handed on, but no op writes it");
  }

  // Says how all ops of all functions touch a value.
  struct Uses {
    bool read = false, written = false, updated = false;
  };

  std::vector<Uses> uses() const {
    std::vector<Uses> uses(program_.value_count());
    for (Id id = 0; id < program_.segment_count(); ++id)
      for (const std::vector<Id>& ops : program_.segment(id).functions)
        for (Id op : ops)
          for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
            if (const Id operand = program_.op(op).operands[i]; operand != none) {
              const Access access = program_.op(op).access(i);
              uses[operand].read |= access == Access::read;
              uses[operand].written |= access == Access::write;
              uses[operand].updated |= access == Access::update;
            }
    return uses;
  }

  // Says whether training was taken out (keep_forward): parameters stay that nothing else uses.
  bool has_left_training_out() const {
    const bool framed = !program_.segment(program_.step_segment()).ops(FunctionKind::load).empty();
    for (Id id = 0; framed && id < program_.segment_count(); ++id)
      if (!program_.segment(id).ops(FunctionKind::update).empty()) return false;
    return framed;
  }

  // Says whether ops read codes of a parameter in its place, made of the part of it that a rank keeps.
  bool is_read_in_codes(const Value& value) const {
    return value.role == Role::parameter && value.bucket >= 0 && !value.view;
  }

  void check_uses() {
    const std::vector<Uses> all = uses();
    const bool trains = !has_left_training_out();
    for (Id id = 0; id < program_.value_count(); ++id) {
      const Value& value = program_.value(id);
      const Uses& is = all[id];
      segment_ = value.segment;
      if (trains && value.role == Role::parameter && !is.read && !is.written && !is.updated &&
          !is_read_in_codes(value))
        fail("parameter '", value.name, "' is used by no op; use it or leave it out");
      if (value.role == Role::runtime && is.written && is.updated && !is.read)
        fail("the sum '", value.name, "' is cleared and added to, but read by no op");
    }
  }

  std::string update_form(Id parameter) const {
    const std::int32_t bucket = program_.value(parameter).bucket;
    return bucket < 0 ? update_of(program_, parameter).form
                      : update_of(program_, program_.buckets()[bucket]).form;
  }

  // Checks that a parameter that is edited after it has become two stays one.
  void check_copies() {
    for (Id id : program_.parameters()) {
      const Value& copy = program_.value(id);
      if (copy.copy_of == none || copy.gradient == none || update_form(id) == update_form(copy.copy_of))
        continue;
      segment_ = copy.segment;
      const Value& original = program_.value(copy.copy_of);
      fail("update of parameter '", copy.name, "': it is a copy of '",
           program_.segment(original.segment).name, ".", original.name,
           "' on another stage of the pipeline, and a strategy has edited the update of one "
           "of them; edit both alike, or before there are two, in phase 'shard'");
    }
  }

  // Checks what must not vary: what the host reads of a step, and what stands for a parameter elsewhere.
  void check_varying() {
    for (const Id id : program_.segment(program_.step_segment()).values) {
      segment_ = program_.step_segment();
      for (AxisId axis = 0; axis < program_.mesh().size(); ++axis)
        if (const Value& value = program_.value(id);
            value.role == Role::staging && value.on(axis).is_varying())
          fail("cannot report '", value.name, "': it varies along axis '", program_.mesh().name(axis),
               "'; the strategy that lets parameters vary there must make ranks agree on it in phase placed");
    }
    for (const Id id : program_.parameters()) {
      const Value& parameter = program_.value(id);
      segment_ = parameter.segment;
      if (parameter.gradient != none && parameter.is_apart() && parameter.stand_in == none)
        fail("parameter '", parameter.name,
             "' varies, and no state stands for it where the run evaluates and in checkpoints; the strategy "
             "that lets it vary names one (evaluate_with)");
    }
  }

  const Program& program_;
  Id segment_ = 0;
  std::set<Id> written_;
};

}  // namespace

void verify(const Program& program) { Verifier(program).run(); }

}  // namespace prun
