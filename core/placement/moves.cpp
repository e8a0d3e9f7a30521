#include "placement/moves.hpp"

#include <algorithm>

#include "placement/copies.hpp"
#include "placement/fetches.hpp"
#include "program/step.hpp"

namespace prun {
namespace {

class Moves {
 public:
  Moves(Program& program, const MoveRules& rules)
      : program_(program), rules_(rules), gradients_(program, rules.parts) {}

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
          "run.keep_gradients = false drops gradients behind their updates, and here those wait for the "
          "norm of all, or gradients lie on the device; have all gradients lie elsewhere (strategy "
          "offload, gradients = \"host\"), and leave optimizer.clip, run.on_nonfinite = \"skip\" and "
          "loss scaling out, or leave run.keep_gradients out");
    gradients_.make_room_behind_updates();
  }

  // Says whether whole gradients are updated elsewhere: the step's own `update` copies to another device what
  // all updates read. What ranks keep in parts they exchange with updates, at the end of the step.
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
    const bool leave = are_elsewhere(gradients);
    if (leave) gradients_.take_part_away(bucket, place_taken(program_, gradients));
    stay_ |= !gradients.empty() && !leave;
  }

  // Requires that all of a bucket's members lie elsewhere, or none.
  bool are_elsewhere(const std::vector<Id>& members) const {
    const bool any =
        std::any_of(members.begin(), members.end(), [&](Id id) { return is_elsewhere(program_, id); });
    for (Id id : members)
      if (any && program_.value(id).place != program_.value(members.front()).place)
        throw_error(ErrorCode::unsupported, described(program_, id), " is kept in parts together with ",
                    described(program_, members.front()), ", which is to lie elsewhere; place both alike");
    return any;
  }

  Program& program_;
  const MoveRules rules_;
  LeavingGradients gradients_;
  bool stay_ = false;  // some gradients stay that are not measured as they are complete
};

}  // namespace

void derive_moves(Program& program, const MoveRules& rules) { Moves(program, rules).run(); }

}  // namespace prun
