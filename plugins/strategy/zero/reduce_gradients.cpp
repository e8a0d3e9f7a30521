// Sums the gradients of a segment's flat parameters over the ranks, each rank its shard: by a reduce-scatter
// or, in codes, by an all-to-all of them, after which each rank adds up what all have sent it. Codes are made
// of blocks of the whole tensor, by each rank before anything is sent, so that the numbers do not depend on
// how many ranks there are; a rank alone makes codes as well, and sends nothing.
//
// All flat parameters of a segment take each step together, so that their collectives stand one after another
// with nothing computed in between.
#include "collectives.hpp"

namespace prun::zero {
namespace {

class Reduction {
 public:
  Reduction(ProgramRef program, const FlatParameter& flat)
      : flat_(flat),
        segment_(program, flat.segment),
        context_(program.step_context()),
        in_codes_(flat.quantized && context_.reduce_bits > 0),
        travels_(is_alone() ? context_.gradient : context_.reduce) {}

  void prepare() {
    sum_ = flat_.gradients;
    if (in_codes_)
      sum_ = segment_.insert(FunctionKind::reduce, first_collective(), "encode", {sum_}, 1, {bits()})[0];
    else if (travels_ != context_.gradient)
      sum_ = cast(sum_, context_.gradient, travels_);
  }

  void scatter() {
    if (is_alone()) return;
    if (in_codes_) {
      sum_ =
          segment_.insert(FunctionKind::reduce, none, "swap_summands", {sum_}, 1, {axis_of(flat_.ranks)})[0];
      lie_in_shards(sum_);
    } else if (travels_ == context_.gradient) {
      segment_.insert_on(FunctionKind::reduce, none, "reduce_scatter", {sum_, shard()},
                         {axis_of(flat_.ranks), {"dim", 0}, parts_of(flat_.ranks)});
      sum_ = shard();
    } else {
      sum_ = segment_.insert(FunctionKind::reduce, none, "reduce_scatter", {sum_}, 1,
                             {axis_of(flat_.ranks), {"dim", 0}, parts_of(flat_.ranks)})[0];
      lie_in_shards(sum_);
    }
  }

  void add_up_codes() {
    if (in_codes_)
      segment_.insert_on(FunctionKind::reduce, none, is_alone() ? "decode" : "sum_decoded", {sum_, shard()},
                         {bits(), {"to", static_cast<double>(segment_.program().value(shard()).dtype)}});
    if (in_codes_ || is_alone()) sum_ = shard();
  }

  // Sums the shard over the axes whose ranks have none of it to themselves.
  void sum_further() {
    for (const AxisInfo axis : flat_.summed)
      segment_.insert_on(FunctionKind::reduce, none, "all_reduce_update", {sum_}, {axis_of(axis)});
  }

  void keep() {
    if (flat_.shards_gradients)
      segment_.insert_on(FunctionKind::reduce, none, "accumulate", {sum_, flat_.own_gradients});
    else if (travels_ != context_.gradient && !in_codes_)
      segment_.insert_on(
          FunctionKind::reduce, none, "cast", {sum_, flat_.own_gradients},
          {{"to", static_cast<double>(context_.gradient)}, {"from", static_cast<double>(travels_)}});
  }

 private:
  bool is_alone() const { return flat_.ranks.extent == 1; }
  AttrValue bits() const { return {"bits", static_cast<double>(context_.reduce_bits)}; }
  // Returns where the sum of the rank's shard comes to lie if it comes in the type of gradients.
  Id shard() const { return flat_.shards_gradients ? flat_.own_sum : flat_.own_gradients; }

  Id first_collective() const {
    for (const Id op : segment_.operations(FunctionKind::reduce))
      if (segment_.program().op(op).def->exchange) return op;
    return none;
  }

  void lie_in_shards(Id value) const {
    for (const Text& axis : flat_.axes)
      segment_.program().place_over(value, {axis, PlacementKind::sharded, "packed"});
  }

  Id cast(Id id, DType from, DType to) const {
    return segment_.insert(FunctionKind::reduce, none, "cast", {id}, 1,
                           {{"to", static_cast<double>(to)}, {"from", static_cast<double>(from)}})[0];
  }

  const FlatParameter& flat_;
  const Segment segment_;
  const StepContext context_;
  const bool in_codes_;
  const DType travels_;
  Id sum_ = none;  // what there is of the sum, after each step
};

}  // namespace

void reduce_gradients(ProgramRef program, const std::vector<FlatParameter>& flat) {
  std::vector<Reduction> all;
  for (const FlatParameter& one : flat)
    if (one.gradients != none) all.emplace_back(program, one);
  for (void (Reduction::*const step)() : {&Reduction::prepare, &Reduction::scatter, &Reduction::add_up_codes,
                                          &Reduction::sum_further, &Reduction::keep})
    for (Reduction& one : all) (one.*step)();
}

}  // namespace prun::zero
