#include "placement/moves.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ops/base_ops.hpp"
#include "placement/pack.hpp"
#include "program/step.hpp"
#include "program/step_program.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- copies
// Copies values between the memory that stores them and the memory that an op computes in. Fetched
// parameters, offloaded gradients and offloaded activations share it. Example: from drives to the device a
// value takes two copies: disk to pinned memory, pinned memory to the device.

// Adds a copy to a function, before op `before` or at the end. Copies from or to a disk pass through pinned
// memory.
void add_copy(Program& program, Id segment, FunctionKind function, Id from, Id to, Id before = none);

// Returns true if a value (not none) is stored outside the memory of the device that computes with it.
bool is_elsewhere(const Program& program, Id id) {
  return id != none && program.value(id).place.value_or(MemoryPlace{}) != MemoryPlace{};
}

// Returns the common place of all members, and clears it.
MemoryPlace place_taken(Program& program, const std::vector<Id>& members) {
  MemoryPlace place;
  for (Id id : members) {
    place = *program.value(id).place;
    program.value(id).place.reset();
  }
  return place;
}

// Returns a text for error messages, such as "'block.attention.qkv.weight'".
std::string described(const Program& program, Id id) {
  const Value& value = program.value(id);
  return detail::concat("'", program.segment(value.segment).name, ".", value.name, "'");
}

void add_copy(Program& program, Id segment, FunctionKind function, Id from, Id to, Id before) {
  const auto on_disk = [&](Id id) {
    return program.value(id).place.value_or(MemoryPlace{}).space == Space::disk;
  };
  if (on_disk(from) || on_disk(to)) {
    const Id passing = program.add_op_creating(segment, function, Part::input, base_ops::copy,
                                               std::span(&from, 1), {}, before)[0];
    program.value(passing).placement = program.value(to).placement;
    program.value(passing).place = MemoryPlace{0, Space::pinned};
    from = passing;
  }
  program.add_op(segment, function, Part::input, base_ops::copy, {from, to}, {}, before);
}

}  // namespace

// ------------------------------------------------------------------- moves

// Backward accumulates in memory that layers reuse; the parameter's gradient is the offloaded copy.
void LeavingGradients::take_away(Id parameter) {
  const Id sum = program_.value(parameter).gradient;
  if (stays(sum)) {
    program_.value(sum).place.reset();
    return keep_until_update(program_.value(parameter).segment, sum);
  }
  Value copy = program_.value(sum);
  copy.name += ".arrived";
  if (!meanwhile_) complete_sums(copy.placement);
  const Id arrived = program_.add_value(std::move(copy));
  program_.value(sum).place.reset();
  program_.value(sum).in_turn = true;
  program_.value(parameter).gradient = arrived;
  for (const FunctionKind kind : optimizer_functions)
    program_.replace_in(program_.segment(program_.value(parameter).segment).ops(kind), sum, arrived);
  leaving_[sum] = {sum, arrived};
  if (meanwhile_) returning_.push_back({sum, arrived});
}

// The shard of the sum is stored within the summed blocks, or separately.
bool LeavingGradients::take_part_away(Bucket& bucket, MemoryPlace place) {
  if (stays(program_.value(bucket.parameters.front()).gradient)) {
    keep_until_update(bucket.segment, bucket.own_gradients);
    return false;
  }
  if (keeps_summed_parts(program_, bucket)) check_summed_once(bucket);
  const Id before = bucket.own_gradients;
  const Id sum = keeps_summed_parts(program_, bucket) ? sum_of_kept(bucket) : sum_of_whole(bucket);
  program_.set_place(bucket.own_gradients, place);
  leaving_[before] = {sum, bucket.own_gradients};
  if (meanwhile_) returning_.push_back({bucket.all_gradients, whole_meanwhile(bucket, place)});
  return true;
}

void LeavingGradients::make_room_behind_updates() {
  for (const auto& [before, move] : leaving_) program_.value(move.arrived).in_turn = true;
}

Id LeavingGradients::sum_of_whole(Bucket& bucket) {
  program_.value(bucket.all_gradients).lifetime = ValueLifetime::unreduced;
  const Id sums = bucket.own_gradients;
  Value part = program_.value(sums);
  part.name += ".arrived";
  part.role = Role::state;
  part.view.reset();
  bucket.own_gradients = program_.add_value(std::move(part));
  for (const FunctionKind kind : optimizer_functions)
    program_.replace_in(program_.segment(bucket.segment).ops(kind), sums, bucket.own_gradients);
  for (const Id padding : paddings(program_, bucket))
    program_.add_op(bucket.segment, FunctionKind::zero, Part::input, base_ops::zero, {padding}, {});
  return sums;
}

// With one microbatch its sum is the step's: no accumulation is needed.
Id LeavingGradients::sum_of_kept(const Bucket& bucket) {
  const Id kept = bucket.own_gradients;
  Id sum = none;
  for (FunctionKind kind : {FunctionKind::zero, FunctionKind::reduce}) {
    const std::vector<Id> ops = program_.segment(bucket.segment).ops(kind);
    for (Id id : ops) {
      const Op op = program_.op(id);
      if (op.operands.back() != kept) continue;
      if (kind == FunctionKind::reduce) sum = in_kept_type(bucket, op.operands.front(), id);
      program_.erase_op(id);
    }
  }
  return sum;
}

Id LeavingGradients::in_kept_type(const Bucket& bucket, Id sum, Id before) {
  const DType from = program_.value(sum).dtype, to = program_.value(bucket.own_gradients).dtype;
  if (from == to) return sum;
  const AttrValue attrs[] = {{"to", static_cast<double>(to)}, {"from", static_cast<double>(from)}};
  const Id made = program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, base_ops::cast,
                                           std::span(&sum, 1), attrs, before)[0];
  program_.value(made).placement = program_.value(sum).placement;
  return made;
}

// Returns true if the sum stays on the device until its update copies it.
bool LeavingGradients::stays(Id gradient) {
  if (rules_.parts != GradientParts::far_apart) return false;
  if (!meanwhile_) meanwhile_ = choose();
  if (*meanwhile_ == SumsMeanwhile::on_device) return true;
  const SegmentData& segment = program_.segment(program_.value(gradient).segment);
  const bool is_layer = segment.incoming != none && segment.outgoing != none;
  if (*meanwhile_ == SumsMeanwhile::edges_on_device && !is_layer) return true;
  check_may_come_and_go(gradient);
  return false;
}

SumsMeanwhile LeavingGradients::choose() {
  if (!rules_.keep_gradients)
    throw_error(
        ErrorCode::unsupported,
        "cannot apply run.keep_gradients = false: each microbatch adds to the gradients of all layers before "
        "the next one does; set batch.order = \"breadth_first\", or leave run.keep_gradients out");
  return static_cast<SumsMeanwhile>(program_.requests().choose_sums_to_fit(
      {"gradients: microbatches add to them on the device, and they leave it for their updates",
       "gradients: those of layers leave the device behind each microbatch and come back for the next; "
       "microbatches add to the others on the device, and they leave it for their updates",
       "gradients: they leave the device behind each microbatch and come back for the next"}));
}

// Copies a sum to the device that runs the update, unless that is device 0.
void LeavingGradients::keep_until_update(Id segment, Id sum) {
  if (program_.segment(segment).device_of(FunctionKind::update) == 0) return;
  for (const FunctionKind kind : {FunctionKind::speculate, FunctionKind::settle})
    for (const Id op : std::vector(program_.segment(segment).ops(kind))) program_.erase_op(op);
  const std::vector<Id> ops = program_.segment(segment).ops(FunctionKind::update);
  const auto reads = [&](Id op) {
    const std::vector<Id>& operands = program_.op(op).operands;
    return std::find(operands.begin(), operands.end(), sum) != operands.end();
  };
  const auto first = std::find_if(ops.begin(), ops.end(), reads);
  if (first == ops.end()) return;
  const Id copy = program_.add_op_creating(segment, FunctionKind::update, Part::input, base_ops::copy,
                                           std::span(&sum, 1), {}, *first)[0];
  program_.value(copy).placement = program_.value(sum).placement;
  complete_sums(program_.value(copy).placement);
  program_.value(copy).place = MemoryPlace{0, Space::pinned};
  program_.replace_in(ops, sum, copy);
}

// Offloads a segment's sums after each microbatch and fetches them before the next. Both copies are in
// function `clear`; the planner calls them separately.
void LeavingGradients::come_and_go(Id segment) {
  for (const Move& move : returning_)
    if (program_.value(move.sum).segment == segment)
      add_copy(program_, segment, FunctionKind::clear, move.sum, move.arrived);
  for (const Move& move : returning_)
    if (program_.value(move.sum).segment == segment)
      add_copy(program_, segment, FunctionKind::clear, move.arrived, move.sum);
}

void LeavingGradients::check_may_come_and_go(Id gradient) const {
  if (program_.requests().pipeline)
    throw_error(ErrorCode::unsupported, "cannot offload the gradient of ", described(program_, gradient),
                " after each microbatch: in a pipeline others are under way by then; take more stages, or "
                "leave the pipeline out");
  if (!rules_.interleaved) return;
  throw_error(ErrorCode::unsupported, "cannot offload the gradient of ", described(program_, gradient),
              " after each microbatch: with batch.interleave several are in a layer at a time; leave "
              "batch.interleave out");
}

// Returns the buffer for a rank's local gradients between two microbatches. The reduced shard is offloaded
// separately at the end.
Id LeavingGradients::whole_meanwhile(const Bucket& bucket, MemoryPlace place) {
  Value whole = program_.value(bucket.all_gradients);
  whole.name += ".meanwhile";
  whole.role = Role::state;
  whole.view.reset();
  whole.lifetime.reset();
  const Id meanwhile = program_.add_value(std::move(whole));
  program_.set_place(meanwhile, place);
  return meanwhile;
}

void LeavingGradients::check_summed_once(const Bucket& bucket) const {
  if (rules_.parts == GradientParts::one) return;
  throw_error(ErrorCode::unsupported, "cannot offload the gradient of ",
              described(program_, bucket.parameters.front()), " once a step: the ranks of axis '",
              program_.mesh().name(bucket.axis),
              "' sum it after each microbatch; sum it once (strategy zero, stage = 3 with reduce = \"step\", "
              "or stage = 1)");
}

// Offloads gradients in program order. Gradients that stay are measured here too: the norm is a sum, and its
// order must not change.
void LeavingGradients::leave(Id segment) {
  const std::vector<Id> norms = program_.segment(segment).ops(FunctionKind::norm),
                        diagnoses = program_.segment(segment).ops(FunctionKind::diagnose);
  for (Id op : norms)
    if (reads_gradient(op)) move_op(op);
  for (Id op : diagnoses)
    if (reads_what_leaves(op)) move_op(op);
  for (const auto& [before, move] : leaving_)
    if (program_.value(before).segment == segment)
      add_copy(program_, segment, FunctionKind::reduce, move.sum, move.arrived);
  come_and_go(segment);
}

bool LeavingGradients::reads_gradient(Id op) const {
  const std::vector<Id>& operands = program_.op(op).operands;
  return std::any_of(operands.begin(), operands.end(), [&](Id id) {
    return id != none && (program_.value(id).role == Role::gradient || program_.value(id).bucket >= 0);
  });
}

bool LeavingGradients::reads_what_leaves(Id op) const {
  const std::vector<Id>& operands = program_.op(op).operands;
  return std::any_of(operands.begin(), operands.end(), [&](Id id) { return leaving_.count(id) != 0; });
}

// It is unknown yet whether the step is kept: this counts non-finite numbers in all gradients unless the step
// is masked anyway.
void LeavingGradients::move_op(Id id) {
  const Id keep = program_.runtime("keep"), halt = program_.runtime("halt");
  std::vector<Id> operands = program_.op(id).operands;
  for (Id& operand : operands) {
    if (const auto found = leaving_.find(operand); found != leaving_.end()) operand = found->second.sum;
    if (operand == keep) operand = halt;
  }
  program_.add_copy(id, FunctionKind::reduce, std::move(operands), none);
  program_.erase_op(id);
}

namespace {

// ------------------------------------------------------------ fetches

// Parameters stored elsewhere are fetched in function `gather` before each use, into memory that layers
// reuse. Sharded parameters are fetched as shards, then gathered.

// Fetches go before the first collective of `gather`.
Id first_exchange(const Program& program, Id segment) {
  for (const Id op : program.segment(segment).ops(FunctionKind::gather))
    if (program.op(op).exchange()) return op;
  return none;
}

// Returns true if ranks keep a secondary copy of the parameters, which `renew` refreshes.
bool has_copy(const Program& program, const Bucket& bucket) {
  const std::vector<Id>& ops = program.segment(bucket.segment).ops(FunctionKind::renew);
  return std::any_of(ops.begin(), ops.end(), [&](Id id) {
    const Op& op = program.op(id);
    return op.exchange() && !op.exchanges_in_place() &&
           program.value(op.operands.front()).bucket == program.value(bucket.own_parameters).bucket;
  });
}

// Fetches a parameter that is in no bucket.
void fetch_parameter(Program& program, Id parameter) {
  Value copy = program.value(parameter);
  copy.name += ".fetched";
  copy.role = Role::fetched;
  copy.gradient = copy.master = copy.copy_of = none;
  copy.states.clear();
  copy.place.reset();
  const Id segment = copy.segment, fetched = program.add_value(std::move(copy));
  for (Id user = 0; user < program.segment_count(); ++user)
    program.replace_in(user, microbatch_functions, parameter, fetched);
  add_copy(program, segment, FunctionKind::gather, parameter, fetched, first_exchange(program, segment));
}

// Fetches the shards of a bucket, stored at `place`. Throws an Error if its parameters are not sharded.
void fetch_part(Program& program, const Bucket& bucket, MemoryPlace place) {
  const std::string& axis = program.mesh().name(bucket.axis);
  if (!gathers_parameters(program, bucket))
    throw_error(ErrorCode::unsupported, "cannot offload ", described(program, bucket.parameters.front()),
                " to ", name_of(place.space), ": the ranks of axis '", axis,
                "' shard its optimizer state, but each holds all of the parameter; let them keep the "
                "parameters in parts too (strategy zero, stage = 3)");
  if (has_copy(program, bucket))
    throw_error(ErrorCode::unsupported, "cannot offload ", described(program, bucket.parameters.front()),
                " to ", name_of(place.space),
                ": ranks keep a secondary copy of it on the device; leave that out (strategy zero, "
                "secondary), or keep "
                "parameters on the device");
  if (!program.value(bucket.parameters.front()).view)
    throw_error(ErrorCode::unsupported, "cannot offload ", described(program, bucket.parameters.front()),
                " to ", name_of(place.space), ": [", program.requests().gathered_codes.asked_by,
                "] quantizes it on the device before it is gathered (cache_weights); leave that out, or keep "
                "parameters on the device");
  Value part = program.value(bucket.own_parameters);
  part.name += ".fetched";
  part.role = Role::view;
  part.view = {bucket.all_parameters, 0, bucket.axis};
  const Id fetched = program.add_value(std::move(part));
  program.set_place(bucket.own_parameters, place);
  const std::vector<Id> ops = program.segment(bucket.segment).ops(FunctionKind::gather);
  add_copy(program, bucket.segment, FunctionKind::gather, bucket.own_parameters, fetched, ops.front());
  for (Id op : ops)
    if (program.op(op).operands.front() == bucket.own_parameters) program.replace_operand(op, 0, fetched);
}

class Moves {
 public:
  Moves(Program& program, const MoveRules& rules)
      : program_(program), rules_(rules), gradients_(program, rules) {}

  void run() {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment) {
      for (Bucket& bucket : program_.buckets())
        if (bucket.segment == segment) move_bucket(bucket);
      const std::vector<Id> values = program_.segment(segment).values;
      for (Id id : values)
        if (program_.value(id).role == Role::parameter && program_.value(id).bucket < 0) move_parameter(id);
    }
    const bool free = rules_.free_updates && !stay_;
    if (!rules_.keep_gradients) make_room(free && gradients_.any());
    if (!gradients_.any() && !whole_are_updated_elsewhere()) return;
    if (gradients_.any())
      for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment)
        gradients_.leave(segment);
    if (free) update_before_norm(program_);
  }

 private:
  void make_room(bool possible) {
    if (!possible)
      throw_error(
          ErrorCode::unsupported,
          "cannot free gradients after their updates (run.keep_gradients = false): updates wait for the "
          "gradient norm, or gradients are stored on the device; offload all gradients (strategy "
          "offload, gradients = \"host\"), and leave optimizer.clip, run.on_nonfinite = \"skip\" and "
          "loss scaling out, or leave run.keep_gradients out");
    gradients_.make_room_behind_updates();
  }

  // Returns true if complete gradients are updated on another device: then the step's own `update` copies the
  // scalars that updates read. Sharded state is exchanged with updates at the end of the step.
  bool whole_are_updated_elsewhere() const {
    return !program_.segment(program_.step_segment()).ops(FunctionKind::update).empty() &&
           program_.buckets().empty();
  }

  void move_parameter(Id parameter) {
    if (is_elsewhere(program_, parameter)) fetch_parameter(program_, parameter);
    const Id gradient = program_.value(parameter).gradient;
    if (is_elsewhere(program_, gradient)) gradients_.take_away(parameter);
    stay_ |= gradient != none && gradient == program_.value(parameter).gradient &&
             program_.value(parameter).copy_of != none;
  }

  void move_bucket(Bucket& bucket) {
    std::vector<Id> gradients;
    for (Id parameter : bucket.parameters)
      if (const Id gradient = program_.value(parameter).gradient; gradient != none)
        gradients.push_back(gradient);
    if (are_elsewhere(bucket.parameters))
      fetch_part(program_, bucket, place_taken(program_, bucket.parameters));
    const bool leave =
        are_elsewhere(gradients) && gradients_.take_part_away(bucket, place_taken(program_, gradients));
    stay_ |= !gradients.empty() && !leave;
  }

  // Throws an Error unless all members are stored at the same place.
  bool are_elsewhere(const std::vector<Id>& members) const {
    const bool any =
        std::any_of(members.begin(), members.end(), [&](Id id) { return is_elsewhere(program_, id); });
    for (Id id : members)
      if (any && program_.value(id).place != program_.value(members.front()).place)
        throw_error(ErrorCode::unsupported, "cannot place ", described(program_, id), " and ",
                    described(program_, members.front()),
                    " in different memory: they are sharded together; place both in one");
    return any;
  }

  Program& program_;
  const MoveRules rules_;
  LeavingGradients gradients_;
  bool stay_ = false;  // some gradients stay on the device, and are measured only at the end
};

// Has runtime numbers that `settle` writes carried to the next step's `speculate`.
void carry_outcomes(Program& program) {
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const Id id : program.segment(segment).ops(FunctionKind::settle)) {
      const Op& op = program.op(id);
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (op.access(i) == Access::write && program.value(op.operands[i]).role == Role::runtime)
          program.value(op.operands[i]).carried = true;
    }
}

}  // namespace

void derive_moves(Program& program, const MoveRules& rules) {
  Moves(program, rules).run();
  carry_outcomes(program);
}

namespace {

// ------------------------------------------------------------------- saved moves

class SavedMoves {
 public:
  SavedMoves(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    for (Id op : program_.segment(segment_).ops(FunctionKind::forward)) add_written(program_.op(op));
    if (const Id incoming = program_.segment(segment_).incoming; incoming != none) made_.insert(incoming);
    for (FunctionKind kind : backward_functions) leave_what_changes(kind);
    for (FunctionKind kind : backward_functions) add_read(kind);
    share_out();
    for (Move& move : moves_) make_room(move);
    add_copies();
    for (FunctionKind kind : backward_functions) read_what_returned(kind);
  }

 private:
  struct Move {
    Id value = none;
    MemoryPlace to;
    Id away = none, back = none;
  };

  void add_written(const Op& op) {
    for (std::size_t i = 0; i < op.operands.size(); ++i)
      if (const Id id = op.operands[i]; id != none && op.access(i) == Access::write &&
                                        program_.value(id).role == Role::activation &&
                                        !program_.value(id).place)
        made_.insert(id);
  }

  // Drops values that one of these ops changes: later readers must see the change.
  void leave_what_changes(FunctionKind kind) {
    for (Id id : program_.segment(segment_).ops(kind))
      for (std::size_t i = 0; i < program_.op(id).operands.size(); ++i)
        if (program_.op(id).access(i) != Access::read) made_.erase(program_.op(id).operands[i]);
  }

  void add_read(FunctionKind kind) {
    for (Id op : program_.segment(segment_).ops(kind))
      for (Id value : program_.op(op).operands)
        if (made_.count(value) != 0 && !move_of(value)) moves_.push_back({value, {}});
  }

  Move* move_of(Id value) {
    const auto found =
        std::find_if(moves_.begin(), moves_.end(), [&](const Move& move) { return move.value == value; });
    return found == moves_.end() ? nullptr : &*found;
  }

  // Assigns values to places, the largest first, each to the place furthest below its share. Values assigned
  // to the device are not moved.
  void share_out() {
    std::vector<Move*> largest_first;
    double all = 0;
    for (Move& move : moves_) {
      largest_first.push_back(&move);
      all += bytes_of(move);
    }
    std::stable_sort(largest_first.begin(), largest_first.end(),
                     [&](const Move* a, const Move* b) { return bytes_of(*a) > bytes_of(*b); });
    struct Missing {
      MemoryPlace place;
      double bytes;
    };
    std::vector<Missing> missing;
    for (const SavedShare& share : program_.segment(segment_).saved)
      missing.push_back({share.place, all * share.percent / 100});
    for (Move* const move : largest_first) {
      Missing& most = *std::max_element(missing.begin(), missing.end(),
                                        [](const Missing& a, const Missing& b) { return a.bytes < b.bytes; });
      move->to = most.place;
      most.bytes -= bytes_of(*move);
    }
    std::erase_if(moves_, [](const Move& move) { return move.to == MemoryPlace{}; });
  }

  double bytes_of(const Move& move) const { return program_.local_bytes(move.value); }

  void make_room(Move& move) {
    move.away = like(move.value, ".away");
    move.back = like(move.value, ".back");
    program_.value(move.away).place = move.to;
    program_.value(move.back).in_turn = true;
    const bool passes = move.value == program_.segment(segment_).incoming ||
                        move.value == program_.segment(segment_).outgoing || program_.is_carried(move.value);
    program_.value(move.value).in_turn = !passes;
  }

  Id like(Id id, const char* suffix) {
    Value copy = program_.value(id);
    copy.name += suffix;
    copy.segment = segment_;
    return program_.add_value(std::move(copy));
  }

  // Values for drives are offloaded first, and fetched after those of faster places, which need not wait for
  // them.
  void add_copies() {
    const auto copy = [&](bool drives, FunctionKind function, Id Move::*from, Id Move::*to) {
      for (const Move& move : moves_)
        if ((move.to.space == Space::disk) == drives)
          add_copy(program_, segment_, function, move.*from, move.*to);
    };
    for (const bool drives : {true, false}) copy(drives, FunctionKind::put_away, &Move::value, &Move::away);
    for (const bool drives : {false, true}) copy(drives, FunctionKind::bring_back, &Move::away, &Move::back);
  }

  void read_what_returned(FunctionKind kind) {
    const std::vector<Id> ops = program_.segment(segment_).ops(kind);
    for (Id op : ops)
      for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
        if (const Move* const move = move_of(program_.op(op).operands[i]))
          program_.replace_operand(op, i, move->back);
  }

  Program& program_;
  const Id segment_;
  std::set<Id> made_;        // written by forward or received from the layer before
  std::vector<Move> moves_;  // in the order in which backward reads them
};

}  // namespace

void derive_saved_moves(Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    if (!program.segment(segment).saved.empty()) SavedMoves(program, segment).run();
}

}  // namespace prun
