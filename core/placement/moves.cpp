// A parameter that lies elsewhere is fetched by the function `gather`, ahead of each use, into memory that
// instances have in turn; where ranks keep it in parts, each fetches its own before they come together. A
// gradient is summed in memory that instances have in turn and leaves by the function `reduce`: behind the
// sum over the ranks, and behind the ops that measure it and look through it, so that their bits are those
// of a gradient that stays. What comes from a disk or goes there passes through pinned memory: nobody but a
// tier's own copies reaches it. What is saved is shared out over places by whole values.
#include "placement/moves.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "program/step.hpp"

namespace prun {
namespace {

// Appends a copy to a function, or puts it before an op of it.
void add_copy(Program& program, Id segment, FunctionKind function, Id from, Id to, Id before = none) {
  const auto on_disk = [&](Id id) {
    return program.value(id).place.value_or(MemoryPlace{}).space == Space::disk;
  };
  if (on_disk(from) || on_disk(to)) {
    const Id passing =
        program.add_op_creating(segment, function, Part::input, "copy", std::span(&from, 1), {}, before)[0];
    program.value(passing).placement = program.value(from).placement;
    program.value(passing).place = MemoryPlace{0, Space::pinned};
    from = passing;
  }
  program.add_op(segment, function, Part::input, "copy", {from, to}, {}, before);
}

class Moves {
 public:
  Moves(Program& program, GradientParts parts, bool free_updates)
      : program_(program), parts_(parts), free_updates_(free_updates) {}

  void run() {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment) {
      for (Bucket& bucket : program_.buckets())
        if (bucket.segment == segment) move_bucket(bucket);
      const std::vector<Id> values = program_.segment(segment).values;
      for (Id id : values)
        if (program_.value(id).role == Role::parameter && program_.value(id).bucket < 0) move_parameter(id);
    }
    if (leaving_.empty() && !whole_are_updated_elsewhere()) return;
    if (!leaving_.empty())
      for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment)
        leave(segment);
    if (free_updates_ && !stay_) update_before_norm(program_);
  }

 private:
  bool is_elsewhere(Id id) const {
    return id != none && program_.value(id).place.value_or(MemoryPlace{}) != MemoryPlace{};
  }

  // Which is where what all updates read comes to another device. What ranks keep in parts they exchange with
  // updates, at the end of the step.
  bool whole_are_updated_elsewhere() const {
    return !program_.segment(program_.step_segment()).ops(FunctionKind::update).empty() &&
           program_.buckets().empty();
  }

  // Taken from the value, whose place it is no more.
  MemoryPlace place_taken(Id id) {
    const MemoryPlace place = *program_.value(id).place;
    program_.value(id).place.reset();
    return place;
  }

  std::string described(Id id) const {
    const Value& value = program_.value(id);
    return detail::concat("'", program_.segment(value.segment).name, ".", value.name, "'");
  }

  // ------------------------------------------------------------- single parameters

  void move_parameter(Id parameter) {
    if (is_elsewhere(parameter)) fetch(parameter);
    const Id gradient = program_.value(parameter).gradient;
    if (is_elsewhere(gradient)) take_away(parameter);
    stay_ |= gradient != none && gradient == program_.value(parameter).gradient &&
             program_.value(parameter).copy_of != none;
  }

  void fetch(Id parameter) {
    Value copy = program_.value(parameter);
    copy.name += ".fetched";
    copy.role = Role::fetched;
    copy.gradient = copy.master = copy.copy_of = none;
    copy.states.clear();
    copy.place.reset();
    const Id segment = copy.segment, fetched = program_.add_value(std::move(copy));
    for (Id user = 0; user < program_.segment_count(); ++user)
      for (FunctionKind kind : {FunctionKind::forward, FunctionKind::backward, FunctionKind::backward_weight})
        use_instead(user, kind, parameter, fetched);
    add_copy(program_, segment, FunctionKind::gather, parameter, fetched, first_exchange(segment));
  }

  // In front of which all is fetched that a segment's gather brings.
  Id first_exchange(Id segment) const {
    for (const Id op : program_.segment(segment).ops(FunctionKind::gather))
      if (program_.op(op).exchange()) return op;
    return none;
  }

  void use_instead(Id segment, FunctionKind kind, Id old, Id fresh) {
    for (Id op : program_.segment(segment).ops(kind))
      for (std::size_t i = 0; i < program_.op(op).operands.size(); ++i)
        if (program_.op(op).operands[i] == old) program_.replace_operand(op, i, fresh);
  }

  // What backward adds to is there in turn; the parameter's gradient is what arrives.
  void take_away(Id parameter) {
    const Id sum = program_.value(parameter).gradient;
    check_stays_in_turn(sum);
    Value copy = program_.value(sum);
    copy.name += ".arrived";
    for (AxisPlacement& lies : copy.placement)
      if (lies.is_partial()) lies = AxisPlacement::replicated();
    const Id arrived = program_.add_value(std::move(copy));
    program_.value(sum).place.reset();
    program_.value(sum).in_turn = true;
    program_.value(parameter).gradient = arrived;
    use_instead(program_.value(parameter).segment, FunctionKind::update, sum, arrived);
    leaving_[sum] = {sum, arrived};
  }

  // ------------------------------------------------------------- buckets

  void move_bucket(Bucket& bucket) {
    std::vector<Id> gradients;
    for (Id parameter : bucket.parameters)
      if (const Id gradient = program_.value(parameter).gradient; gradient != none)
        gradients.push_back(gradient);
    if (are_elsewhere(bucket.parameters)) fetch_part(bucket, place_of_all(bucket.parameters));
    const bool leave = are_elsewhere(gradients);
    if (leave) take_part_away(bucket, place_of_all(gradients));
    stay_ |= !gradients.empty() && !leave;
  }

  // All of a bucket's, or none.
  bool are_elsewhere(const std::vector<Id>& members) const {
    const bool any = std::any_of(members.begin(), members.end(), [&](Id id) { return is_elsewhere(id); });
    for (Id id : members)
      if (any && program_.value(id).place != program_.value(members.front()).place)
        throw_error(ErrorCode::unsupported, described(id), " is kept in parts together with ",
                    described(members.front()), ", which is to lie elsewhere; place both alike");
    return any;
  }

  MemoryPlace place_of_all(const std::vector<Id>& members) {
    MemoryPlace place;
    for (Id id : members) place = place_taken(id);
    return place;
  }

  void fetch_part(Bucket& bucket, MemoryPlace place) {
    const std::string& axis = program_.mesh().name(bucket.axis);
    if (!bucket.kept.parameters)
      throw_error(ErrorCode::unsupported, described(bucket.parameters.front()), " is to lie in ",
                  name_of(place.space), ", and the ranks of axis '", axis,
                  "' keep its optimizer state in parts but each of them all of it; let them keep the "
                  "parameters in parts too (strategy zero, stage = 3), and each fetches its own");
    Value part = program_.value(bucket.own_parameters);
    part.name += ".fetched";
    part.role = Role::view;
    bucket.own_fetched = program_.add_value(std::move(part));
    program_.set_place(bucket.own_parameters, place);
    const std::vector<Id> ops = program_.segment(bucket.segment).ops(FunctionKind::gather);
    add_copy(program_, bucket.segment, FunctionKind::gather, bucket.own_parameters, bucket.own_fetched,
             ops.front());
    for (Id op : ops)
      if (program_.op(op).operands.front() == bucket.own_parameters)
        program_.replace_operand(op, 0, bucket.own_fetched);
  }

  // The rank's part of the sum comes to lie in the blocks that it is a sum of, or in a value of its own.
  void take_part_away(Bucket& bucket, MemoryPlace place) {
    check_stays_in_turn(program_.value(bucket.parameters.front()).gradient);
    if (bucket.kept.gradients) check_summed_once(bucket);
    const Id before = bucket.own_gradients;
    const Id sum = bucket.kept.gradients ? sum_of_kept(bucket) : sum_of_whole(bucket);
    program_.set_place(bucket.own_gradients, place);
    leaving_[before] = {sum, bucket.own_gradients};
  }

  Id sum_of_whole(Bucket& bucket) {
    bucket.kept.gradients = true;
    bucket.own_sums = bucket.own_gradients;
    Value part = program_.value(bucket.own_sums);
    part.name += ".arrived";
    part.role = Role::state;
    bucket.own_gradients = program_.add_value(std::move(part));
    use_instead(bucket.segment, FunctionKind::update, bucket.own_sums, bucket.own_gradients);
    for (const Bucket::Padding& padding : bucket.padding)
      program_.add_op(bucket.segment, FunctionKind::zero, Part::input, "zero", {padding.view}, {});
    return bucket.own_sums;
  }

  // The only microbatch's sum is that of the step: nothing is added to what is kept.
  Id sum_of_kept(const Bucket& bucket) {
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

  Id in_kept_type(const Bucket& bucket, Id sum, Id before) {
    const DType from = program_.value(sum).dtype, to = program_.value(bucket.own_gradients).dtype;
    if (from == to) return sum;
    const AttrValue attrs[] = {{"to", static_cast<double>(to)}, {"from", static_cast<double>(from)}};
    const Id made = program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, "cast",
                                             std::span(&sum, 1), attrs, before)[0];
    program_.value(made).placement = program_.value(sum).placement;
    return made;
  }

  // ------------------------------------------------------------- what leaves

  // Added up elsewhere, microbatch by microbatch, it would be another sum.
  void check_stays_in_turn(Id gradient) const {
    if (parts_ != GradientParts::far_apart) return;
    throw_error(
        ErrorCode::unsupported, "the gradient of ", described(gradient),
        " is to leave the device when the last microbatch of a step has added to it, so until then those "
        "of all layers would be there; set batch.order = \"vertical\", or batch.micro to all of a "
        "rank's share of batch.global");
  }

  void check_summed_once(const Bucket& bucket) const {
    if (parts_ == GradientParts::one) return;
    throw_error(
        ErrorCode::unsupported, "the ranks of axis '", program_.mesh().name(bucket.axis),
        "' sum the gradient of ", described(bucket.parameters.front()),
        " after each microbatch, and it is to leave the device once a step; sum it once (strategy zero, "
        "stage = 3 with reduce = \"step\", or stage = 1)");
  }

  // In the order in which they stood, and gradients that stay are measured there too: a norm is a sum.
  void leave(Id segment) {
    const std::vector<Id> norms = program_.segment(segment).ops(FunctionKind::norm),
                          diagnoses = program_.segment(segment).ops(FunctionKind::diagnose);
    for (Id op : norms)
      if (reads_gradient(op)) move_op(op);
    for (Id op : diagnoses)
      if (reads_what_leaves(op)) move_op(op);
    for (const auto& [before, move] : leaving_)
      if (program_.value(before).segment == segment)
        add_copy(program_, segment, FunctionKind::reduce, move.sum, move.arrived);
  }

  bool reads_gradient(Id op) const {
    const std::vector<Id>& operands = program_.op(op).operands;
    return std::any_of(operands.begin(), operands.end(), [&](Id id) {
      return id != none && (program_.value(id).role == Role::gradient || program_.value(id).bucket >= 0);
    });
  }

  bool reads_what_leaves(Id op) const {
    const std::vector<Id>& operands = program_.op(op).operands;
    return std::any_of(operands.begin(), operands.end(), [&](Id id) { return leaving_.count(id) != 0; });
  }

  // Whether the step will be kept is not known yet: all are looked through, unless the step is masked anyway.
  void move_op(Id id) {
    const Id keep = program_.runtime("keep"), halt = program_.runtime("halt");
    std::vector<Id> operands = program_.op(id).operands;
    for (Id& operand : operands) {
      if (const auto found = leaving_.find(operand); found != leaving_.end()) operand = found->second.sum;
      if (operand == keep) operand = halt;
    }
    program_.add_copy(id, FunctionKind::reduce, std::move(operands), none);
    program_.erase_op(id);
  }

  struct Move {
    Id sum = none;      // complete, in the device's memory
    Id arrived = none;  // where it leaves to
  };

  Program& program_;
  const GradientParts parts_;
  const bool free_updates_;
  bool stay_ = false;           // some gradients do that are not measured as they are complete
  std::map<Id, Move> leaving_;  // by what the ops of a gradient that stays read
};

// What backward reads of a segment's forward.
class SavedMoves {
 public:
  SavedMoves(Program& program, Id segment) : program_(program), segment_(segment) {}

  void run() {
    for (Id op : program_.segment(segment_).ops(FunctionKind::forward)) add_written(program_.op(op));
    if (const Id incoming = program_.segment(segment_).incoming; incoming != none) made_.insert(incoming);
    for (FunctionKind kind : passes_back) leave_what_changes(kind);
    for (FunctionKind kind : passes_back) add_read(kind);
    share_out();
    for (Move& move : moves_) make_room(move);
    add_copies();
    for (FunctionKind kind : passes_back) read_what_returned(kind);
  }

 private:
  static constexpr FunctionKind passes_back[] = {FunctionKind::backward, FunctionKind::backward_weight};

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

  // What one of them changes, the other finds.
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

  // The largest first, each where most is missing; what stays on the device is no move.
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

  double bytes_of(const Move& move) const { return static_cast<double>(program_.local_bytes(move.value)); }

  void make_room(Move& move) {
    move.away = like(move.value, ".away");
    move.back = like(move.value, ".back");
    program_.value(move.away).place = move.to;
    program_.value(move.back).in_turn = true;
    const bool passes = move.value == program_.segment(segment_).incoming ||
                        move.value == program_.segment(segment_).outgoing;
    program_.value(move.value).in_turn = !passes;
  }

  Id like(Id id, const char* suffix) {
    Value copy = program_.value(id);
    copy.name += suffix;
    copy.segment = segment_;
    return program_.add_value(std::move(copy));
  }

  // What has the longer way, by way of memory to a drive, leaves first, and returns behind what waits for no
  // drive.
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
  std::set<Id> made_;        // by forward, or by the one before
  std::vector<Move> moves_;  // of those that backward reads, in that order
};

}  // namespace

void derive_saved_moves(Program& program) {
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    if (!program.segment(segment).saved.empty()) SavedMoves(program, segment).run();
}

void derive_moves(Program& program, GradientParts parts, bool free_updates) {
  Moves(program, parts, free_updates).run();
}

}  // namespace prun
