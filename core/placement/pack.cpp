#include "placement/pack.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "placement/coded_exchanges.hpp"
#include "placement/pack_whole.hpp"
#include "placement/parameter_gathers.hpp"
#include "placement/summand_exchanges.hpp"
#include "program/passes.hpp"
#include "program/update_form.hpp"
#include "prun/block_codes.hpp"

namespace prun {
namespace {

enum class Travels : std::uint8_t { as_it_is, in_codes };

// Parameters with equal keys can be updated by the same ops.
using Key = std::tuple<std::int32_t, bool, double, double, Id, std::string, std::string, AxisId, Travels>;

class Packer {
 public:
  Packer(Program& program, const Optimizers& optimizers, std::vector<AxisId> axes, const PartsRequest& parts)
      : program_(program),
        optimizers_(optimizers),
        axes_(std::move(axes)),
        kept_(parts.kept),
        gathers_(program, parts.copy_axes) {
    kept_.gradients |= is_alone() && program_.precision().reduce_bits > 0;
  }

  // What ranks sum of parameters that travel so is what updates make of them. Where no axis sums it, each of
  // so many microbatches is taken for a rank's.
  Packer(Program& program, const Optimizers& optimizers, std::int64_t microbatches)
      : program_(program), optimizers_(optimizers), microbatches_(microbatches), gathers_(program, {}) {
    for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
      if (program.mesh().extent(axis) > 1) axes_.push_back(axis);
  }

  void run() {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment) {
      const std::size_t first = program_.buckets().size();
      for (const auto& [key, members] : groups_of(segment))
        pack(segment, members, std::get<Id>(key), std::get<AxisId>(key), std::get<Travels>(key));
      add_exchanges(first);
    }
    if (is_alone() || sums_in_update()) return;
    check_shared_out();
    sum_over_parts(FunctionKind::finish, norms_);
    sum_over_parts(FunctionKind::report, counts_);
  }

 private:
  std::int64_t parts(const Bucket& bucket) const { return program_.mesh().extent(bucket.axis); }

  // One rank rounds what several would send in codes, its microbatches one by one as if each were another
  // rank's, and has everything else as it would without parts.
  bool is_alone() const { return program_.mesh().extent(folded(axes_)) == 1; }

  bool sums_in_update() const { return microbatches_ > 0; }

  bool travels_in_codes(Id parameter) const {
    if (sums_in_update()) {
      const Value& value = program_.value(parameter);
      return value.gradient != none && prun::sums_in_update(program_, parameter, optimizer_of(value)) &&
             comes_in_blocks(program_, parameter);
    }
    const Precision& precision = program_.precision();
    return ((precision.gather_bits > 0 && kept_.parameters) || precision.reduce_bits > 0) &&
           comes_in_blocks(program_, parameter);
  }
  bool sums_codes(const Bucket& bucket) const {
    return bucket.coded && program_.precision().reduce_bits > 0 && !sums_in_update();
  }

  // Gradients that do not travel in codes travel in this type.
  DType travels() const { return is_alone() ? program_.precision().gradient : program_.precision().reduce; }

  // The accumulator that the norm of a gradient goes to; none: of a copy, which its original counts.
  Id norm_of(Id gradient, Id segment) const {
    for (Id id : program_.segment(segment).ops(FunctionKind::norm))
      if (program_.op(id).operands[0] == gradient) return program_.op(id).operands[1];
    return none;
  }

  std::map<Key, std::vector<Id>> groups_of(Id segment) const {
    std::map<Key, std::vector<Id>> groups;
    for (Id id : program_.segment(segment).values) {
      const Value& value = program_.value(id);
      if (value.role != Role::parameter || value.bucket >= 0 || value.untrained) continue;
      if ((is_alone() || sums_in_update()) && !travels_in_codes(id)) continue;
      const bool frozen = value.gradient == none;
      const std::vector<AxisId> axes = frozen ? axes_of_frozen(value) : axes_that_sum(value);
      if (!frozen && axes.empty() && !sums_in_update()) check_is_whole(value);
      if (sums_in_update()) check_one_stage_has(id);
      if (axes.empty() && !sums_in_update()) continue;
      // What two stages hold must be summed in the same order on both: by itself, as nothing else there is
      // alike.
      std::string lies = frozen ? "frozen;" : is_tied(program_, value.gradient) ? "tied;" : "";
      for (const AxisPlacement& placement : value.placement) lies += to_text(placement) + ";";
      if (!frozen) lies += summed_behind(segment, id, folded(axes));
      groups[{value.optimizer, value.decay, value.lr_scale, value.weight_decay,
              norm_of(value.gradient, segment), lies, form_of(id), folded(axes),
              travels_in_codes(id) ? Travels::in_codes : Travels::as_it_is}]
          .push_back(id);
    }
    return groups;
  }

  // The axes over which the bucket is to be summed as a whole, in words: all of its gradients are, or none.
  std::string summed_behind(Id segment, Id parameter, AxisId axis) const {
    Bucket bucket;
    bucket.segment = segment;
    bucket.axis = axis;
    bucket.coded = travels_in_codes(parameter);
    std::set<AxisId> axes;
    for (const Id id : program_.segment(segment).ops(FunctionKind::reduce))
      if (sums_over(bucket, id) && !is_over(bucket, program_.axis_of(id)) &&
          is_sum_of(id, program_.value(parameter).gradient))
        axes.insert(program_.axis_of(id));
    std::string text;
    for (const AxisId behind : axes) text += "summed over " + program_.mesh().name(behind) + ";";
    return text;
  }

  // Says whether it sums the gradient, in its own type or in the one that it is cast to.
  bool is_sum_of(Id sum, Id gradient) const {
    if (program_.op(sum).operands[0] == gradient) return true;
    const std::vector<Id> casts = casts_around(sum);
    return std::any_of(casts.begin(), casts.end(),
                       [&](Id id) { return program_.op(id).operands[0] == gradient; });
  }

  // Returns the casts to and from what is summed, where a gradient travels in another type.
  std::vector<Id> casts_around(Id sum) const {
    const Id summed = program_.op(sum).operands[0];
    std::vector<Id> casts = program_.segment(program_.op(sum).segment).ops(FunctionKind::reduce);
    std::erase_if(casts, [&](Id id) {
      const Op& op = program_.op(id);
      return !op.def->converts || (op.operands[0] != summed && op.operands[1] != summed);
    });
    return casts;
  }

  const NamedOptimizer& optimizer_of(const Value& parameter) const {
    return optimizers_.at(static_cast<std::size_t>(parameter.optimizer));
  }
  std::string form_of(Id parameter) const {
    const Update update = update_of(program_, parameter);
    return optimizer_of(program_.value(parameter)).updates_whole() ? flat_form(program_, parameter, update)
                                                                   : update.form;
  }

  std::vector<AxisId> axes_of_frozen(const Value& parameter) const {
    std::vector<AxisId> axes;
    for (const AxisId axis : axes_)
      if (kept_.parameters && parameter.on(axis).is_replicated()) axes.push_back(axis);
    return axes;
  }

  // A parameter that lies in parts along an axis has its state in parts there as well.
  std::vector<AxisId> axes_that_sum(const Value& parameter) const {
    std::vector<AxisId> axes;
    if (is_alone() && !sums_in_update()) return axes_;
    for (const AxisId axis : axes_) {
      const AxisPlacement lies = program_.value(parameter.gradient).on(axis);
      if (lies.is_partial()) axes.push_back(axis);
      if (sums_in_update()) continue;
      if (!lies.is_partial() && !lies.is_sharded())
        throw_error(ErrorCode::unsupported, "axis '", program_.mesh().name(axis), "': the gradient of '",
                    parameter.name, "' is ", to_text(lies),
                    " there; state can be kept in parts only over an axis that sums every gradient that is "
                    "whole, as strategy data's does");
    }
    return axes;
  }

  // What stays as it is must not be summed with those that are summed after each microbatch.
  void check_is_whole(const Value& parameter) const {
    if (!kept_.gradients) return;
    for (const Id id : program_.segment(parameter.segment).ops(FunctionKind::reduce))
      if (touched_by(id, {parameter.gradient}) != none)
        throw_error(
            ErrorCode::unsupported, "the gradient of '", parameter.name,
            "' lies in parts over each axis that state is kept in parts over, and is summed over "
            "another once a step, while others are summed after each microbatch; name that axis too, "
            "or keep gradients whole (strategy zero, stage = 1, or stage = 3 with reduce = \"step\")");
  }

  void check_one_stage_has(Id id) const {
    const Value& value = program_.value(id);
    if (is_tied(program_, value.gradient) || value.copy_of != none)
      throw_error(ErrorCode::unsupported,
                  "precision.reduce = \"1bit\" sums what one stage makes of a gradient, "
                  "and two stages hold '",
                  value.name, "'; untie it, or take another type");
  }

  // Whoever names an axis means that something is shared out over it.
  void check_shared_out() const {
    for (const AxisId axis : axes_) {
      const auto shares = [&](const Bucket& bucket) {
        const std::vector<AxisId> axes = axes_of(bucket.axis);
        return std::find(axes.begin(), axes.end(), axis) != axes.end();
      };
      if (std::none_of(program_.buckets().begin(), program_.buckets().end(), shares))
        throw_error(ErrorCode::unsupported, "axis '", program_.mesh().name(axis),
                    "' sums no gradient, so that no state can be kept in parts over it; name the axis of "
                    "strategy data");
    }
  }

  void pack(Id segment, const std::vector<Id>& members, Id norm, AxisId axis, Travels travels) {
    Bucket bucket;
    bucket.segment = segment;
    bucket.axis = sums_in_update() ? folded({}) : axis;
    bucket.coded = travels == Travels::in_codes;
    bucket.kept = kept_;
    if (sums_in_update()) add_summands(bucket, axis);
    bucket.kept.parameters &= !is_alone() || program_.precision().gather_bits > 0;
    for (Id id : members) {
      bucket.parameters.push_back(id);
      bucket.offsets.push_back(bucket.elements);
      bucket.elements += (program_.local_elements(id) + bucket_grain - 1) / bucket_grain * bucket_grain;
    }
    const std::int64_t grain = std::max(parts(bucket), summands_) * bucket_grain;
    bucket.elements = (bucket.elements + grain - 1) / grain * grain;
    number_ = static_cast<std::int32_t>(program_.buckets().size());
    add_parameters(bucket);
    if (program_.value(members.front()).gradient != none) {
      std::vector<Update> updates;
      updates.reserve(members.size());
      for (Id id : members) updates.push_back(update_of(program_, id));
      remove_single_ops(bucket);
      add_state(bucket);
      add_ops(bucket, norm, updates);
      for (Id id : members) forget_states(program_.value(id));
      for (const Update& update : updates)
        for (Id op : update.ops) program_.erase_op(op);
    }
    program_.buckets().push_back(std::move(bucket));
    if (norm != none) norms_.insert({norm, axis});
  }

  // A rank alone holds microbatches one by one.
  void add_summands(Bucket& bucket, AxisId axis) {
    const std::int64_t ranks = program_.mesh().extent(axis);
    bucket.summed_in_update = axis;
    summands_ = ranks > 1 ? ranks : microbatches_;
    bucket.kept.gradients = ranks == 1 && microbatches_ > 1;
  }

  // A row for each rank's part of the bucket or, of a rank alone, for each summand.
  void lay_in_rows(const Bucket& bucket) {
    for (const Id id : bucket.parameters)  // each rank's own, of which no sum is to be taken
      for (AxisPlacement& lies : program_.value(program_.value(id).gradient).placement)
        if (lies.is_partial()) lies = AxisPlacement::replicated();
    const bool alone = program_.mesh().extent(*bucket.summed_in_update) == 1;
    for (const Id id : {bucket.all_gradients, bucket.own_gradients}) {
      if (alone && id == bucket.all_gradients && bucket.kept.gradients) continue;
      program_.value(id).dims =
          alone ? std::vector<Dim>{{"summands", summands_}, {"packed", bucket.elements}}
                : std::vector<Dim>{{"parts", summands_}, {"packed", bucket.elements / summands_}};
    }
  }

  // ------------------------------------------------------------- values

  Id add_flat(const Bucket& bucket, const char* name, Role role, DType type, bool own) {
    Value value;
    value.name = detail::concat("bucket.", number_, ".", name);
    value.role = role;
    value.dtype = type;
    value.segment = bucket.segment;
    value.bucket = number_;
    value.dims = own || parts(bucket) == 1 ? std::vector<Dim>{{"packed", bucket.elements}}
                                           : std::vector<Dim>{{"parts", parts(bucket)},
                                                              {"packed", bucket.elements / parts(bucket)}};
    if (own)
      lay_in_parts(bucket, value);
    else
      value.placement.resize(program_.mesh().size());
    return program_.add_value(std::move(value));
  }

  void lay_in_parts(const Bucket& bucket, Value& value) const {
    value.placement.resize(program_.mesh().size());
    for (const AxisId axis : axes_of(bucket.axis)) value.placement[axis] = AxisPlacement::sharded("packed");
  }

  void add_parameters(Bucket& bucket) {
    const DType type = program_.precision().compute;
    for (Id id : bucket.parameters) program_.value(id).bucket = number_;
    bucket.all_parameters = add_flat(bucket, "parameters", Role::view, type, false);
    bucket.own_parameters =
        add_flat(bucket, "parameters.own", bucket.kept.parameters ? Role::state : Role::view, type, true);
    if (bucket.kept.parameters) gathers_.add(bucket, bucket.coded && program_.precision().gather_bits > 0);
  }

  // What an update needs beside the parameters.
  void add_state(Bucket& bucket) {
    const Precision& precision = program_.precision();
    for (Id id : bucket.parameters) {
      Value& parameter = program_.value(id);
      program_.value(parameter.gradient).bucket = number_;
    }
    bucket.all_gradients = add_flat(bucket, "gradients", Role::view, precision.gradient, false);
    bucket.own_gradients = add_flat(bucket, "gradients.own", bucket.kept.gradients ? Role::state : Role::view,
                                    precision.gradient, true);
    if (bucket.summed_in_update) lay_in_rows(bucket);
    if (kept_.gradients && travels() == precision.gradient)
      bucket.own_sums = add_flat(bucket, "sums.own", Role::view, precision.gradient, true);
    add_padding(bucket);
    if (precision.has_master())
      bucket.master = add_flat(bucket, "master", Role::state, precision.kept_master(), true);
    const Value first = program_.value(bucket.parameters.front());
    for (const Id id : first.states) {
      const Value state = program_.value(id);
      const std::string name = state.name.substr(first.name.size() + 1);
      if (!state.own_shape)
        bucket.states.push_back(add_flat(bucket, name.c_str(), Role::state, state.dtype, true));
    }
    for (const Id id : first.scales)
      bucket.scales.push_back(id == none ? none : add_scales(bucket, first, id));
  }

  // One for each block of the bucket: parts and members begin with one.
  Id add_scales(const Bucket& bucket, const Value& parameter, Id of_one) {
    const Value one = program_.value(of_one);
    const Id flat =
        add_flat(bucket, one.name.substr(parameter.name.size() + 1).c_str(), Role::state, one.dtype, true);
    program_.value(flat).dims.front().extent /= one.block;
    program_.value(flat).block = one.block;
    return flat;
  }

  void add_padding(Bucket& bucket) {
    for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
      const std::int64_t begin = bucket.offsets[m] + program_.local_elements(bucket.parameters[m]);
      const bool last = m + 1 == bucket.parameters.size();
      const std::int64_t end = last ? bucket.elements : bucket.offsets[m + 1];
      if (begin == end) continue;
      Value padding = program_.value(bucket.all_gradients);
      padding.name = detail::concat("bucket.", number_, ".padding.", m);
      padding.dims = {{"packed", end - begin}};
      bucket.padding.push_back({program_.add_value(std::move(padding)), begin});
    }
  }

  void forget_states(Value& parameter) {
    const auto is_kept = [&](Id state) { return program_.value(state).own_shape; };
    if (parameter.master != none) program_.forget_value(parameter.master);
    for (Id state : parameter.states)
      if (!is_kept(state)) program_.forget_value(state);
    for (Id scale : parameter.scales)
      if (scale != none) program_.forget_value(scale);
    parameter.master = none;
    std::erase_if(parameter.states, [&](Id state) { return !is_kept(state); });
  }

  // ------------------------------------------------------------- ops

  // The ops of single gradients that the bucket's replace. Sums over other axes stay.
  void remove_single_ops(const Bucket& bucket) {
    std::set<Id> gradients;
    for (Id id : bucket.parameters) gradients.insert(program_.value(id).gradient);
    remove_single_ops(bucket, FunctionKind::zero, gradients, [](const Op& op) { return op.def->clears; });
    remove_single_ops(bucket, FunctionKind::norm, gradients, [](const Op& op) {
      return op.kind() == "sum_squares" || op.kind() == "summand_squares";
    });
    std::vector<Id> sums = copy_of(bucket, FunctionKind::reduce);
    for (Id id : sums) check_sums_or_casts(id, gradients);
    std::erase_if(sums, [&](Id id) { return !sums_over(bucket, id); });
    for (Id id : sums) {
      const AxisId axis = program_.axis_of(id);
      if (remove_sum(bucket, id, gradients) && !is_over(bucket, axis)) summed_behind_[number_].insert(axis);
    }
  }

  // Those that are as expected, one for each gradient.
  template <class Expected>
  void remove_single_ops(const Bucket& bucket, FunctionKind function, const std::set<Id>& gradients,
                         Expected&& expected) {
    std::set<Id> done;
    for (Id id : copy_of(bucket, function)) {
      const Id gradient = touched_by(id, gradients);
      if (gradient == none) continue;
      if (!expected(program_.op(id)) || !done.insert(gradient).second) refuse_edit(id, gradient);
      program_.erase_op(id);
    }
  }

  Id touched_by(Id op, const std::set<Id>& gradients) const {
    for (Id operand : program_.op(op).operands)
      if (gradients.count(operand) != 0) return operand;
    return none;
  }

  // It would find parts where it was written for the whole.
  [[noreturn]] void refuse_edit(Id id, Id gradient) const {
    const Op& op = program_.op(id);
    throw_error(ErrorCode::unsupported, "axis '", program_.mesh().name(folded(axes_)), "': segment '",
                program_.segment(op.segment).name, "', ", name_of(op.function), ", op '", op.kind(),
                "': a strategy lets it work on '", program_.value(gradient).name,
                "', which is kept in parts; leave it out, or the strategy that keeps state in parts");
  }

  void check_sums_or_casts(Id id, const std::set<Id>& gradients) const {
    const Id gradient = touched_by(id, gradients);
    const Op& op = program_.op(id);
    if (gradient != none && !op.exchanges_in_place() && !op.def->converts) refuse_edit(id, gradient);
  }

  std::vector<Id> copy_of(const Bucket& bucket, FunctionKind kind) const {
    return program_.segment(bucket.segment).ops(kind);
  }

  bool sums_over(const Bucket& bucket, Id id) const {
    const Op& op = program_.op(id);
    if (!op.exchanges_in_place() || op.exchange()->reduction != Reduction::sum) return false;
    const AxisId axis = program_.axis_of(id);
    return sums_codes(bucket) || is_over(bucket, axis) || stands_in_front(bucket, axis);
  }

  // Ranks along it are further apart than those that have parts, so it has less to carry where it sums parts.
  bool stands_in_front(const Bucket& bucket, AxisId axis) const {
    return parts(bucket) > 1 && axes_of(axis).back() < axes_of(bucket.axis).front();
  }

  static bool is_over(const Bucket& bucket, AxisId axis) {
    const std::vector<AxisId> axes = axes_of(bucket.axis);
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  }

  // With the casts around it, where the gradient travels in another type. Returns whether it is one of these.
  bool remove_sum(const Bucket& bucket, Id sum, const std::set<Id>& gradients) {
    const Id summed = program_.op(sum).operands[0];
    bool ours = gradients.count(summed) != 0;
    const std::vector<Id> casts = casts_around(sum);
    for (const Id id : casts) ours |= gradients.count(program_.op(id).operands[0]) != 0;
    if (!ours) return false;
    program_.erase_op(sum);
    const std::vector<Id> left = copy_of(bucket, FunctionKind::reduce);
    const bool summed_elsewhere = std::any_of(left.begin(), left.end(), [&](Id id) {
      return program_.op(id).exchanges_in_place() && program_.op(id).operands[0] == summed;
    });
    for (Id id : casts)
      if (gradients.count(summed) == 0 && !summed_elsewhere) program_.erase_op(id);
    return true;
  }

  void add(const Bucket& bucket, FunctionKind function, const char* kind, std::vector<Id> operands,
           std::span<const AttrValue> attrs = {}) {
    program_.add_op(bucket.segment, function, Part::input, kind, std::move(operands), attrs);
  }

  std::array<AttrValue, 3> along(const Bucket& bucket) const {
    return {axis_attr(bucket.axis), {"dim", 0}, {"parts", static_cast<double>(parts(bucket))}};
  }

  void add_ops(const Bucket& bucket, Id norm, std::span<const Update> updates) {
    add_zeros(bucket);
    if (norm != none)
      add(bucket, FunctionKind::norm, sums_in_update() ? "summand_squares" : "sum_squares",
          {bucket.own_gradients, norm});
    redirect_diagnosis(bucket);
    if (optimizer_of(program_.value(bucket.parameters.front())).updates_whole())
      return pack_whole_updates(program_, bucket, updates, loads_);
    add_update(bucket);
    if (sums_in_update()) return sum_what_it_makes(bucket, updates.front());
    carry_edits(program_, bucket.parameters.front(), updates.front(), update_of(program_, bucket));
    split_what_it_makes(bucket);
  }

  void sum_what_it_makes(const Bucket& bucket, const Update& edited) {
    carry_attributes(program_, bucket.parameters.front(), edited, update_of(program_, bucket));
    SummandExchanges(program_, bucket, number_, summands_).insert();
    if (bucket.kept.gradients)
      add(bucket, FunctionKind::reduce, "keep_summand", {bucket.all_gradients, bucket.own_gradients});
  }

  // What the ops of an update hand to each other is as long as a rank's part.
  void split_what_it_makes(const Bucket& bucket) {
    const Value& own = program_.value(bucket.own_parameters);
    for (Id op : program_.segment(bucket.segment).ops(FunctionKind::update))
      for (Id operand : program_.op(op).operands)
        if (operand != none && program_.value(operand).role == Role::activation &&
            program_.value(operand).dims == own.dims)
          program_.value(operand).placement = own.placement;
  }

  // What looked through a gradient looks through its stretch of the own part.
  void redirect_diagnosis(const Bucket& bucket) {
    for (Id id : copy_of(bucket, FunctionKind::diagnose)) {
      const Op op = program_.op(id);
      for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
        const Id gradient = program_.value(bucket.parameters[m]).gradient;
        if (touched_by(id, {gradient}) == none) continue;
        if (op.kind() != "count_non_finite") refuse_edit(id, gradient);
        program_.replace_operand(id, 0, bucket.own_gradients);
        program_.set_attr(id, "first", static_cast<double>(bucket.offsets[m]));
        program_.set_attr(id, "elements", static_cast<double>(program_.local_elements(bucket.parameters[m])));
        counts_.insert({op.operands[2], bucket.axis});
        count_further_rows(bucket, id, bucket.offsets[m]);
      }
    }
  }

  // A rank alone that holds several summands has a row for each.
  void count_further_rows(const Bucket& bucket, Id count, std::int64_t offset) {
    const bool in_rows = bucket.summed_in_update && bucket.kept.gradients;
    for (std::int64_t row = 1; in_rows && row < summands_; ++row) {
      const std::vector<Id> operands = program_.op(count).operands;
      const Id further = program_.add_copy(count, FunctionKind::diagnose, operands, none);
      program_.set_attr(further, "first", static_cast<double>(row * bucket.elements + offset));
    }
  }

  // Padding stays zero where it is in nobody else's memory meanwhile: all that is ever written to it is the
  // ranks' sum of it.
  void add_zeros(const Bucket& bucket) {
    const bool kept = bucket.kept.gradients;
    const FunctionKind begins = kept ? FunctionKind::clear : FunctionKind::zero;
    for (Id id : bucket.parameters) add(bucket, begins, "zero", {program_.value(id).gradient});
    if (!kept) return;
    for (const Bucket::Padding& padding : bucket.padding) add(bucket, begins, "zero", {padding.view});
    add(bucket, FunctionKind::zero, "zero", {bucket.own_gradients});
  }

  // Those of a segment's buckets side by side, with nothing computed between them, so that they travel at the
  // same time. Gradients are summed, each rank its part, in the type that travels; where parts are kept,
  // microbatches add up in the part.
  void add_exchanges(std::size_t first) {
    if (sums_in_update()) return;
    std::vector<Bucket> trained(program_.buckets().begin() + static_cast<std::ptrdiff_t>(first),
                                program_.buckets().end());
    std::erase_if(trained, [](const Bucket& bucket) { return bucket.all_gradients == none; });
    const DType kept = program_.precision().gradient, travels = this->travels();
    std::vector<Id> blocks, sums;
    for (const Bucket& bucket : trained) blocks.push_back(blocks_of(bucket));
    for (std::size_t b = 0; b < trained.size(); ++b) sums.push_back(scatter(trained[b], blocks[b]));
    for (std::size_t b = 0; b < trained.size(); ++b)
      if (sums_codes(trained[b])) sums[b] = sum_codes(trained[b], sums[b]);
    for (std::size_t b = 0; b < trained.size(); ++b) sum_behind(trained[b], sums[b]);
    for (std::size_t b = 0; b < trained.size(); ++b) {
      if (kept_.gradients)
        add(trained[b], FunctionKind::reduce, "accumulate", {sums[b], trained[b].own_gradients});
      else if (travels != kept && !sums_codes(trained[b]))
        add(trained[b], FunctionKind::reduce, "cast", {sums[b], trained[b].own_gradients},
            cast_attrs(travels, kept));
    }
    for (const Bucket& bucket : trained)
      if (!bucket.kept.parameters && parts(bucket) > 1)
        add(bucket, FunctionKind::update, "all_gather", {bucket.own_parameters, bucket.all_parameters},
            along(bucket));
  }

  // Gives what a rank has of the sum, as it travels.
  Id blocks_of(const Bucket& bucket) {
    const DType kept = program_.precision().gradient;
    if (sums_codes(bucket)) return CodedExchanges(program_, parts(bucket)).encode_gradients(bucket);
    return travels() == kept ? bucket.all_gradients : cast(bucket, bucket.all_gradients, kept, travels());
  }

  // It lies in its place within the blocks.
  Id part_of_sum(const Bucket& bucket) const {
    return kept_.gradients ? bucket.own_sums : bucket.own_gradients;
  }

  // Over further axes, each rank its part: of codes, since each rounds what it has itself.
  void sum_behind(const Bucket& bucket, Id part) {
    const std::int32_t number = program_.value(bucket.all_gradients).bucket;
    if (const auto axes = summed_behind_.find(number); axes != summed_behind_.end())
      for (const AxisId axis : axes->second) {
        const AttrValue attr = axis_attr(axis);
        add(bucket, FunctionKind::reduce, "all_reduce_update", {part}, std::span(&attr, 1));
      }
  }

  Id sum_codes(const Bucket& bucket, Id summands) {
    const Id part = part_of_sum(bucket);
    CodedExchanges(program_, parts(bucket)).sum_gradients(bucket, summands, part);
    return part;
  }

  // The rank's part of the sum: in its place within the blocks or, where these are of another type, a value
  // of its own. Of codes, all ranks' summands of that part.
  Id scatter(const Bucket& bucket, Id blocks) {
    const Precision& precision = program_.precision();
    if (sums_codes(bucket)) return CodedExchanges(program_, parts(bucket)).swap_gradients(bucket, blocks);
    if (parts(bucket) == 1) return part_of_sum(bucket);
    if (travels() == precision.gradient) {
      const Id part = part_of_sum(bucket);
      add(bucket, FunctionKind::reduce, "reduce_scatter", {blocks, part}, along(bucket));
      return part;
    }
    const Id part = program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input,
                                             "reduce_scatter", std::span(&blocks, 1), along(bucket), none)[0];
    lay_in_parts(bucket, program_.value(part));
    return part;
  }

  Id cast(const Bucket& bucket, Id id, DType from, DType to) {
    return program_.add_op_creating(bucket.segment, FunctionKind::reduce, Part::input, "cast",
                                    std::span(&id, 1), cast_attrs(from, to), none)[0];
  }

  void add_update(const Bucket& bucket) {
    UpdateContext context = update_context(program_, bucket.parameters.front());
    context.parameter = bucket.own_parameters;
    context.master = bucket.master;
    context.gradient = bucket.own_gradients;
    context.states = {bucket.states.data(), bucket.states.size()};
    context.scales = {bucket.scales.data(), bucket.scales.size()};
    const NamedOptimizer& optimizer = optimizer_of(program_.value(bucket.parameters.front()));
    raise(optimizer.plugin->update(&program_api(), &program_, bucket.segment, context));
  }

  using Sums = std::set<std::pair<Id, AxisId>>;

  // Each rank has the squares and counts of its parts only.
  void sum_over_parts(FunctionKind function, const Sums& sums) {
    const std::vector<Id>& ops = program_.segment(program_.step_segment()).ops(function);
    Id before = none;
    for (const auto& [sum, over] : sums) {
      PRUN_CHECK(sum != before, "'", program_.value(sum).name, "' is a sum over different axes");
      before = sum;
      const AttrValue axis = axis_attr(over);
      program_.add_op(program_.step_segment(), function, Part::input, "all_reduce_update", {sum},
                      std::span(&axis, 1), ops.empty() ? none : ops.front());
    }
  }

  Program& program_;
  const Optimizers& optimizers_;
  std::vector<AxisId> axes_;  // each of several ranks
  KeptInParts kept_;
  std::int64_t microbatches_ = 0;  // 0: what is summed is gradients
  std::int64_t summands_ = 1;      // of a bucket that is being made
  ParameterGathers gathers_;
  DealtLoads loads_;
  std::map<std::int32_t, std::set<AxisId>> summed_behind_;  // by bucket
  std::int32_t number_ = 0;
  Sums norms_, counts_;
};

}  // namespace

void pack_state(Program& program, const Optimizers& optimizers, const PartsRequest& parts) {
  std::vector<AxisId> axes = parts.axes;
  std::erase_if(axes, [&](AxisId axis) { return program.mesh().extent(axis) == 1; });
  std::sort(axes.begin(), axes.end());
  const Precision& precision = program.precision();
  if (axes.empty() && ((precision.gather_bits > 0 && parts.kept.parameters) || precision.reduce_bits > 0))
    axes = {parts.axes.front()};
  if (!axes.empty()) Packer(program, optimizers, std::move(axes), parts).run();
}

void pack_summands(Program& program, const Optimizers& optimizers, std::int64_t microbatches) {
  const std::size_t before = program.buckets().size();
  Packer(program, optimizers, microbatches).run();
  if (program.buckets().size() == before)
    throw_error(
        ErrorCode::unsupported, "precision.reduce is \"1bit\", and no parameter has ", code_least,
        " elements and more, in whole blocks of ", code_block,
        ", and an optimizer that ranks sum instead of its gradient; take a type that numbers are summed "
        "in, such as \"bf16\"");
}

}  // namespace prun
