// Adds what frames a step. Everything that changes from step to step enters and leaves through staging
// buffers in host memory, so that no one writes into live memory: `load` copies a microbatch in, `begin` the
// scalars and clears the sums, `report` copies the results out.
#include "program/step.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "ops/base_ops.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- group losses

// The op's operands are the largest logits, sums, hits, targets and the loss.
bool is_loss_of_split_head(const Op& op) {
  return op.is(base_ops::lm_head_loss) || op.is(base_ops::lm_head_regularized_loss);
}

bool adds_to(const Op& op, Id sum) {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] == sum && op.access(i) == Access::update) return true;
  return false;
}

void add_sum(Program& program, Id loss) {
  const Op op = program.op(loss);
  std::vector<AttrValue> attrs;
  for (std::size_t i = 0; i < op.def->attr_count; ++i)
    attrs.push_back({op.def->attrs[i].name, program.attr(loss, op.def->attrs[i].name)});
  program.add_op(op.segment, op.function, op.part, base_ops::lm_head_groups,
                 {op.operands[0], op.operands[1], op.operands[2], op.operands[3],
                  program.input(op.segment, groups_input), program.find_runtime(group_sums)},
                 attrs, loss);
}

}  // namespace

void declare_loss_groups(Program& program, std::int64_t groups) {
  const Id step = program.step_segment();
  Value input = program.value(program.input(step, "targets"));
  input.name = groups_input;
  program.add_value(std::move(input));
  const Dim dims[] = {{"group", groups}, {"loss_and_count", 2}};
  program.add_tally(step, "losses", dims);
}

void sum_loss_by_group(Program& program) {
  const Id loss_sum = program.runtime("loss_sum");
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment) {
    const std::vector<Id> forward = program.segment(segment).ops(FunctionKind::forward);
    for (const Id id : forward) {
      if (!adds_to(program.op(id), loss_sum)) continue;
      if (!is_loss_of_split_head(program.op(id)))
        throw_error(ErrorCode::unsupported, "cannot report the loss by set or role: op '",
                    program.op(id).kind(), "' of segment '", program.segment(segment).name,
                    "' gives no loss of each target; leave run.loss_by_set and run.loss_by_role out");
      add_sum(program, id);
    }
  }
}

namespace {

// ------------------------------------------------------------------- step

// Each rank has its own `counted` (targets that count) and `stop`; all ranks know the others.
constexpr const char* scalars_in[] = {"seed", "counted", "stop"};
// These follow from the number of updates so far, or from whether the step before counts at all. A step may
// be staged before that is known: each is staged for both outcomes, and the step takes the one that `keep` of
// the step before selects.
constexpr const char* outcomes_in[] = {"lr", "step", "halt"};
constexpr const char* results[] = {"loss_sum", "grad_norm", "clip", "keep", "counted", "stop", "non_finite"};

std::vector<Name> counted_over(std::string_view scalar) {
  if (scalar == "counted") return {"batch", "seq"};
  if (scalar == "stop") return {"*"};
  return {};
}

// Programs that weigh sequences alike, however many of their targets count, read this number.
constexpr const char* sequences_in = "inv_sequences";

constexpr const char *in = ".staged", *in_masked = ".staged.masked", *out = ".reported";

std::string first_of(const std::string& axis) { return "first." + axis; }

Id add_staging(Program& program, Id device_value, const char* suffix) {
  Value staged = program.value(device_value);
  staged.name += suffix;
  staged.role = Role::staging;
  staged.segment = program.step_segment();
  staged.carried = false;
  return program.add_value(std::move(staged));
}

void add_copy(Program& program, FunctionKind function, Id from, Id to) {
  program.add_op(program.step_segment(), function, Part::input, base_ops::copy, {from, to}, {});
}

// Masks a step that needed more than was planned for: what it computed lacks something.
void mask_beyond(Program& program, Id total, Id before) {
  program.add_op(program.step_segment(), FunctionKind::finish, Part::input, base_ops::halt_beyond,
                 {total, program.runtime("halt")}, {}, before);
}

// Sums what ops have counted over all ranks once the step is finished, and reports it to the host then.
void add_tally(Program& program, Id tally) {
  const Id step = program.step_segment();
  program.add_op(step, FunctionKind::begin, Part::input, base_ops::zero, {tally}, {});
  Value whole = program.value(tally);
  whole.name += ".total";
  whole.tally = false;
  const bool bounds = is_bound(program.value(tally));
  const Id total = program.add_value(std::move(whole));
  const Id before = bounds ? program.segment(step).ops(FunctionKind::finish).front() : none;
  program.add_op(step, FunctionKind::finish, Part::input, base_ops::total, {tally, total}, {}, before);
  if (bounds) mask_beyond(program, total, before);
  Value reported = program.value(tally);
  reported.name += out;
  reported.role = Role::staging;
  reported.tally = false;
  add_copy(program, FunctionKind::report, total, program.add_value(std::move(reported)));
}

Id add_outcome(Program& program, const char* name) {
  const Id scalar = program.runtime(name), keep = program.runtime("keep");
  const Id kept = add_staging(program, scalar, in), masked = add_staging(program, scalar, in_masked);
  program.add_op(program.step_segment(), FunctionKind::begin, Part::input, base_ops::choose,
                 {keep, kept, masked, scalar}, {});
  return scalar;
}

Id staging_of(const Program& program, const std::string& name, const char* suffix) {
  for (Id id : program.segment(program.step_segment()).values)
    if (program.value(id).role == Role::staging && program.value(id).name == name + suffix) return id;
  return none;
}

StagedOutcome outcome_of(const Program& program, const std::string& name) {
  return {staging_of(program, name, in), staging_of(program, name, in_masked)};
}

bool changes(const Op& op, Id value) {
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] == value && op.access(i) == Access::update) return true;
  return false;
}

// Returns the head's first three operands, and for each other one that the op reads, the head's operand of
// that name.
std::vector<Id> operands_of_logits(const Program& program, const Op& head) {
  constexpr std::size_t common = 3;
  const OpDef& wanted = program.registry().find(head.def->logits);
  std::vector<Id> list(head.operands.begin(), head.operands.begin() + common);
  for (std::size_t i = common; i < wanted.operand_count; ++i) {
    if (wanted.operands[i].access == Access::write) continue;
    list.push_back(none);
    for (std::size_t of = common; of < head.operands.size(); ++of)
      if (std::string_view(head.def->operands[of].name) == wanted.operands[i].name)
        list.back() = head.operands[of];
  }
  return list;
}

// Returns the head's attributes that the op of its logits knows as well: those that change logits.
std::vector<AttrValue> attrs_of_logits(const Program& program, Id head) {
  const OpDef& of = *program.op(head).def;
  const OpDef& wanted = program.registry().find(of.logits);
  std::vector<AttrValue> attrs;
  for (std::size_t i = 0; i < of.attr_count; ++i)
    for (std::size_t j = 0; j < wanted.attr_count; ++j)
      if (std::string_view(of.attrs[i].name) == wanted.attrs[j].name)
        attrs.push_back({of.attrs[i].name, program.attr(head, of.attrs[i].name)});
  return attrs;
}

}  // namespace

bool is_bound(const Value& tally) { return tally.dims.back().name == bound_dim; }

void frame_late_tally(Program& program, Id tally) {
  if (!program.segment(program.step_segment()).ops(FunctionKind::finish).empty()) add_tally(program, tally);
}

Id add_staged_scalar(Program& program, const char* name, std::vector<Name> counted) {
  const Id scalar = program.runtime(name);
  const Id staged = add_staging(program, scalar, in);
  program.value(staged).counted = std::move(counted);
  add_copy(program, FunctionKind::begin, staged, scalar);
  return scalar;
}

namespace {

// Adds numbers that a step clears. Each rank has its own, of whatever part of a value it has.
Id add_counts(Program& program, std::string name, std::int64_t rows) {
  Value value;
  value.name = std::move(name);
  value.role = Role::runtime;
  value.dtype = DType::f64;
  value.dims = {{"place", rows}, {"number", 3}};
  value.segment = program.step_segment();
  value.placement.assign(program.mesh().size(), AxisPlacement::varying());
  const Id counts = program.add_value(std::move(value));
  program.add_op(program.step_segment(), FunctionKind::begin, Part::input, base_ops::zero, {counts}, {});
  return counts;
}

// Puts together what the ranks of all axes have counted, and reports it; returns the staging buffer.
Id add_total(Program& program, Id counts, const char* exchange) {
  const Id step = program.step_segment();
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (const AttrValue over = axis_attr(axis); program.mesh().extent(axis) > 1)
      program.add_op(step, FunctionKind::finish, Part::input, exchange, {counts}, std::span(&over, 1));
  Value whole = program.value(counts);
  whole.placement.clear();
  Value reported = whole;
  whole.name += ".total";
  reported.name += out;
  reported.role = Role::staging;
  const Id total = program.add_value(std::move(whole)), to = program.add_value(std::move(reported));
  program.add_op(step, FunctionKind::finish, Part::input, base_ops::total, {counts, total}, {});
  add_copy(program, FunctionKind::report, total, to);
  return to;
}

}  // namespace

void add_quantization_counts(Program& program, QuantizationCounts& counts) {
  const std::string name(counts.name.view());
  const auto refuse = [&](const char* why) {
    throw_error(ErrorCode::bad_input, "cannot count quantized values of '", name, "': ", why);
  };
  if (!program.is_placed()) refuse("ranks' parts are not known yet; count them in phase placed");
  if (program.requests().quantization) refuse("another strategy counts some; leave one of the two out");
  if (counts.values.size == 0 || counts.every < 1)
    refuse("name values, and take a number of steps from 1 on");
  QuantizationReport report{program.writer(), {}, counts.every, counts.bound};
  std::int64_t rows = 0;
  for (const CountedValue& value : counts.values) {
    report.values.push_back({std::string(value.name.view()), rows, value.layers});
    rows += value.layers;
  }
  std::sort(report.values.begin(), report.values.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  counts.on = add_staged_scalar(program, (name + ".counting").c_str(), {});
  report.on = staging_of(program, name + ".counting", in);
  counts.counts = add_counts(program, name + ".counts", rows);
  counts.peaks = add_counts(program, name + ".peaks", rows);
  report.counts = add_total(program, counts.counts, base_ops::all_reduce_update);
  report.peaks = add_total(program, counts.peaks, base_ops::all_reduce_max_update);
  program.requests().quantization = std::move(report);
}

namespace {

bool makes_gradients(const Op& op) {
  return op.function != FunctionKind::forward || op.def->gradient_in_forward;
}

// Says whether the op makes another number of those it reads, and all ops that read that one make gradients.
bool is_factor_of_gradients(const Program& program, const Op& op) {
  if (op.def->effect != Effect::pure || op.access(op.operands.size() - 1) != Access::write) return false;
  const Id made = op.operands.back();
  if (!program.value(made).dims.empty()) return false;
  for (FunctionKind kind : microbatch_functions)
    for (Id id : program.segment(op.segment).ops(kind)) {
      const Op& other = program.op(id);
      for (std::size_t i = 0; i < other.operands.size(); ++i)
        if (other.operands[i] == made && other.access(i) != Access::write && !makes_gradients(other))
          return false;
    }
  return true;
}

}  // namespace

// Gives ops that make gradients a number that the scale of the loss is a factor of; an op that reads the
// number for another purpose has it unscaled.
void scale_gradients(Program& program, const char* name, Id loss_scale) {
  const Id number = program.find_runtime(name);
  if (number == none) return;
  const Id scaled = program.runtime(std::string(name) + ".scaled");
  program.add_op(program.step_segment(), FunctionKind::begin, Part::input, base_ops::multiply,
                 {number, loss_scale, scaled}, {});
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (FunctionKind kind : microbatch_functions)
      for (Id id : program.segment(segment).ops(kind)) {
        const Op& op = program.op(id);
        if (!makes_gradients(op) && !is_factor_of_gradients(program, op)) continue;
        program.replace_in(std::span(&id, 1), number, scaled);
      }
}

void add_step(Program& program, const StepOptions& options) {
  const Id step = program.step_segment();
  for (Id input : program.inputs())
    add_copy(program, FunctionKind::load, add_staging(program, input, in), input);
  for (const char* name : scalars_in) add_staged_scalar(program, name, counted_over(name));
  if (program.find_runtime(sequences_in) != none) add_staged_scalar(program, sequences_in, {});
  program.value(program.runtime("keep")).carried = true;
  for (const char* name : outcomes_in) add_outcome(program, name);
  program.add_op(step, FunctionKind::begin, Part::input, base_ops::reciprocal,
                 {program.runtime("counted"), program.runtime("inv_targets")}, {});
  const Id loss_scale = options.scales_loss ? add_outcome(program, "loss_scale") : none;
  if (options.scales_loss)
    for (const char* name : {"inv_targets", sequences_in}) scale_gradients(program, name, loss_scale);
  for (Id sum : {program.runtime("loss_sum"), program.runtime("grad_squares"), non_finite_counts(program)})
    program.add_op(step, FunctionKind::begin, Part::input, base_ops::zero, {sum}, {});
  const AttrValue limit{"limit", options.clip};
  program.add_op(step, FunctionKind::finish, Part::input, base_ops::clip_factor,
                 {program.runtime("grad_squares"), program.runtime("loss_sum"), program.runtime("halt"),
                  program.runtime("grad_norm"), program.runtime("clip"), program.runtime("keep"), loss_scale},
                 std::span(&limit, 1));
  for (const Id tally : program.tallies()) add_tally(program, tally);
  for (const char* name : results) {
    const Id result = program.runtime(name);
    add_copy(program, FunctionKind::report, result, add_staging(program, result, out));
  }
}

void add_logits(Program& program) {
  std::vector<Id> heads;
  const Id loss_sum = program.runtime("loss_sum");
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (Id id : program.segment(segment).ops(FunctionKind::forward))
      if (program.op(id).def->logits && changes(program.op(id), loss_sum)) heads.push_back(id);
  if (heads.size() != 1)
    throw_error(ErrorCode::unsupported, "cannot generate text: the model has ", heads.size(),
                " heads that add to its loss and give logits (OpDef::logits), not one");
  const Op head = program.op(heads.front());
  const Id logits = program.add_op_creating(head.segment, FunctionKind::forward, Part::input,
                                            head.def->logits, operands_of_logits(program, head),
                                            attrs_of_logits(program, heads.front()), heads.front())[0];
  Value staged = program.value(logits);
  staged.name = std::string("logits") + out;
  staged.role = Role::staging;
  staged.segment = program.step_segment();
  staged.dims.back().name = "logits";
  program.add_op(head.segment, FunctionKind::forward, Part::input, base_ops::whole_logits,
                 {logits, program.add_value(std::move(staged))}, {}, heads.front());
}

Id add_first_of_axis(Program& program, const std::string& axis) {
  const std::string name = first_of(axis);
  const Id known = program.find_runtime(name);
  return known != none ? known : add_staged_scalar(program, name.c_str(), {});
}

void update_before_norm(Program& program) {
  const Id keep = program.runtime("keep"), clip = program.runtime("clip"), go = add_outcome(program, "go");
  for (Id op : program.segment(program.step_segment()).ops(FunctionKind::update))
    if (const Id told = program.op(op).operands.front(); told == keep || told == clip)
      program.replace_operand(op, 0, go);
}

namespace {

// Has the program take what is staged for the case that the step before is kept.
void stage_as_kept(Program& program, Id scalar) {
  for (const Id id : program.segment(program.step_segment()).ops(FunctionKind::begin)) {
    const Op& op = program.op(id);
    if (op.is(base_ops::choose) && op.operands.back() == scalar) {
      program.replace_op(id, base_ops::copy, {op.operands[1], scalar}, {});
      return;
    }
  }
}

// Takes out the counts of non-finite elements: they come behind the norm of all, when gradients are those of
// another step.
void count_none(Program& program, Id counts) {
  std::vector<Id> erased;
  for (Id segment = 0; segment < program.segment_count(); ++segment) {
    const std::vector<Id>& ops = program.segment(segment).ops(FunctionKind::diagnose);
    erased.insert(erased.end(), ops.begin(), ops.end());
  }
  for (const Id id : program.segment(program.step_segment()).ops(FunctionKind::report))
    if (program.op(id).exchanges_in_place() && program.op(id).operands.front() == counts)
      erased.push_back(id);
  for (const Id id : erased) program.erase_op(id);
}

// Says whether one op must come before another, by the values that they touch.
bool comes_first(const Op& first, const Op& second) {
  for (std::size_t i = 0; i < first.operands.size(); ++i)
    for (std::size_t j = 0; j < second.operands.size(); ++j)
      if (first.operands[i] != none && first.operands[i] == second.operands[j] &&
          (first.access(i) != Access::read || second.access(j) != Access::read))
        return true;
  return false;
}

// Moves exchanges into `finish`. Ranks reach the end of a step at different times. Their exchanges for it
// stand at one place in their order, `finish`; what follows from these, and all else, is `report`.
void exchange_in_finish(Program& program) {
  SegmentData& step = program.segment(program.step_segment());
  std::vector<Id>&finish = step.ops(FunctionKind::finish), &report = step.ops(FunctionKind::report);
  finish.insert(finish.end(), report.begin(), report.end());
  std::vector<Id> first, rest;
  for (auto id = finish.rbegin(); id != finish.rend(); ++id) {
    const Op& op = program.op(*id);
    const bool is_first = op.exchange() || std::any_of(first.begin(), first.end(), [&](Id later) {
                            return comes_first(op, program.op(later));
                          });
    (is_first ? first : rest).push_back(*id);
  }
  finish.assign(first.rbegin(), first.rend());
  report.assign(rest.rbegin(), rest.rend());
  for (const Id id : finish) program.op(id).function = FunctionKind::finish;
  for (const Id id : report) program.op(id).function = FunctionKind::report;
}

}  // namespace

void update_at_once(Program& program) {
  const Id keep = program.runtime("keep"), clip = program.runtime("clip"), go = add_outcome(program, "go");
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id op : program.segment(segment).ops(FunctionKind::update))
      for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
        if (const Id told = program.op(op).operands[i]; told == keep || told == clip)
          program.replace_operand(op, i, go);
  for (const char* name : {"lr", "step", "halt", "go"}) stage_as_kept(program, program.runtime(name));
  count_none(program, non_finite_counts(program));
  exchange_in_finish(program);
}

bool updates_before_norm(const Program& program) { return program.find_runtime("go") != none; }

StagedValues staged_values(const Program& program) {
  StagedValues staged;
  staged.tokens = staging_of(program, "tokens", in);
  staged.targets = staging_of(program, "targets", in);
  staged.samples = staging_of(program, "samples", in);
  staged.groups = staging_of(program, groups_input, in);
  staged.lr = outcome_of(program, "lr");
  staged.step = outcome_of(program, "step");
  staged.halt = outcome_of(program, "halt");
  staged.go = outcome_of(program, "go");
  staged.loss_scale = outcome_of(program, "loss_scale");
  staged.seed = staging_of(program, "seed", in);
  staged.inv_sequences = staging_of(program, sequences_in, in);
  staged.counted = staging_of(program, "counted", in);
  staged.stop = staging_of(program, "stop", in);
  staged.loss_sum = staging_of(program, "loss_sum", out);
  staged.grad_norm = staging_of(program, "grad_norm", out);
  staged.keep = staging_of(program, "keep", out);
  staged.all_counted = staging_of(program, "counted", out);
  staged.any_stop = staging_of(program, "stop", out);
  staged.non_finite = staging_of(program, "non_finite", out);
  staged.logits = staging_of(program, "logits", out);
  staged.position = staging_of(program, "position", in);
  for (const Id tally : program.tallies()) {
    const std::string& name = program.value(tally).name;
    if (name == group_sums)
      staged.losses = staging_of(program, name, out);
    else
      staged.tallies.push_back({tally, staging_of(program, name, out)});
  }
  for (const Axis& axis : program.mesh().axes()) {
    const std::string name = first_of(axis.name);
    staged.first.push_back(program.find_runtime(name) == none ? none : staging_of(program, name, in));
  }
  return staged;
}

namespace {

// ------------------------------------------------------------------- forward
// Cuts a program that trains nothing out of one that does: so parameters, their parts and their exchanges are
// those of training, whatever strategies and passes made of them.

class ForwardOnly {
 public:
  ForwardOnly(Program& program, std::span<const Id> wanted)
      : program_(program), needed_(wanted.begin(), wanted.end()) {}

  void run() {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment)
      if (const Id outgoing = program_.segment(segment).outgoing; outgoing != none) needed_.insert(outgoing);
    find_kept();
    std::erase_if(program_.carried(),
                  [&](const CarriedValue& carried) { return needed_.count(carried.value) == 0; });
    each_op([&](Id id) {
      if (kept_.count(id) == 0)
        program_.erase_op(id);
      else
        still(id);
    });
    forget_training();
    forget_unused();
  }

 private:
  static bool may_stay(FunctionKind kind) {
    return kind == FunctionKind::load || kind == FunctionKind::begin || kind == FunctionKind::renew ||
           kind == FunctionKind::gather || kind == FunctionKind::forward || kind == FunctionKind::finish ||
           kind == FunctionKind::report;
  }

  template <class Body>
  void each_op(Body&& body) {
    for (Id segment = 0; segment < program_.segment_count(); ++segment)
      for (int kind = 0; kind < function_kinds; ++kind) {
        const std::vector<Id> ops = program_.segment(segment).ops(static_cast<FunctionKind>(kind));
        for (Id op : ops) body(op);
      }
  }

  // Keeps ops until no other op makes what one that stays reads.
  void find_kept() {
    for (bool grown = true; grown;) {
      grown = false;
      each_op([&](Id id) {
        if (kept_.count(id) == 0 && may_stay(program_.op(id).function) && makes_needed(program_.op(id)))
          grown |= keep(id);
      });
    }
  }

  // Parameters are gathered for all ops that read the members of their bucket.
  bool makes_needed(const Op& op) const {
    if (op.function == FunctionKind::gather || op.function == FunctionKind::renew) return true;
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.access(i) != Access::read && needed_.count(op.operands[i]) != 0) return true;
    return false;
  }

  bool keep(Id id) {
    kept_.insert(id);
    const Op& op = program_.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (op.operands[i] != none && op.access(i) != Access::write) needed_.insert(op.operands[i]);
    return true;
  }

  // Leaves out of an op that stays all gradients, results that only gradients need, and noise.
  void still(Id id) {
    Op& op = program_.op(id);
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      const bool spare = op.access(i) == Access::write && op.def->operands[i].optional;
      if (spare && needed_.count(op.operands[i]) == 0) op.operands[i] = none;
      if (op.operands[i] == none || program_.value(op.operands[i]).role != Role::gradient) continue;
      if (!op.def->operands[i].optional)
        throw_error(ErrorCode::unsupported, "cannot evaluate without training: operand '",
                    op.def->operands[i].name, "' of op '", op.kind(), "' in segment '",
                    program_.segment(op.segment).name,
                    "' is a gradient; make it optional, or give the op a split()");
      op.operands[i] = none;
    }
    if (op.def->noise) program_.set_attr(id, op.def->noise, 0);
  }

  void forget_training() {
    for (Id id = 0; id < program_.value_count(); ++id) {
      Value& value = program_.value(id);
      value.gradient = value.master = none;
      value.states.clear();
      value.scales.clear();
    }
    for (Bucket& bucket : program_.buckets()) {
      bucket.all_gradients = bucket.own_gradients = bucket.master = none;
      bucket.states.clear();
      bucket.scales.clear();
    }
    for (CarriedValue& carried : program_.carried()) carried.gradient = none;
    for (Id segment = 0; segment < program_.segment_count(); ++segment) {
      SegmentData& data = program_.segment(segment);
      data.incoming_gradient = data.outgoing_gradient = none;
      data.recompute_to_fit = false;
    }
  }

  void forget_unused() {
    std::set<Id> used;
    for (Id op : kept_)
      for (Id operand : program_.op(op).operands) used.insert(operand);
    for (const Bucket& bucket : program_.buckets())
      used.insert({bucket.all_parameters, bucket.own_parameters});
    for (Id id = 0; id < program_.value_count(); ++id)
      if (program_.value(id).role != Role::parameter && used.count(id) == 0) program_.forget_value(id);
  }

  Program& program_;
  std::set<Id> needed_;
  std::set<Id> kept_;
};

}  // namespace

void keep_forward(Program& program, std::span<const Id> wanted) { ForwardOnly(program, wanted).run(); }

}  // namespace prun
