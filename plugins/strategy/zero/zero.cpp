// ZeRO lets the ranks of a data-parallel axis, or of several axes that sum gradients, keep in parts what each
// of them would otherwise keep whole.
//   stage 0  nothing: as without this strategy
//   stage 1  optimizer state and master copies
//   stage 2  gradients too: summed over the ranks as soon as no microbatch has given only some of them, which
//            is mostly after each, and each rank adds up its part
//   stage 3  parameters too: gathered one use ahead, forward and backward
// Where parameters are in parts over ranks of several hosts, `secondary` names the axes of those of one host:
// they have a copy among them, from which each use gathers.
// Stage 3 with reduce = "step" keeps gradients whole after all and sums them once a step: m times less to
// send for m microbatches.
#include <algorithm>

#include "prun/block_codes.hpp"
#include "prun/plugin.hpp"
#include "prun/strategy.hpp"

namespace prun::zero {
namespace {

// ------------------------------------------------------------------- collectives
// Writes the collectives of sharded state, over what ProgramApi::shard_state has made flat.

// Returns attributes of a collective over these ranks.
inline AttrValue axis_of(AxisInfo ranks) { return {"axis", static_cast<double>(ranks.number)}; }
inline AttrValue parts_of(AxisInfo ranks) { return {"parts", static_cast<double>(ranks.extent)}; }

// ------------------------------------------------------------------- gather parameters
// Gathers the parameters of a segment's flat parameters: behind an update where each rank keeps all,
// otherwise before each use; as they are, in codes (prun/block_codes.hpp), or as codes that products read.
//
// Where some of the ranks have a secondary copy among them, which lies in shards, a step makes it once, ahead
// of the first use (`renew`), and each use gathers over those ranks alone. It is what travels, so in codes
// where that is codes. ZeRO++ has each forward gather over all ranks and keep the copy of that for backward;
// here a step brings a rank's share between hosts once, whatever the microbatches.
//
// All flat parameters of a segment take each step together, so that their collectives stand one after
// another, with ops that encode before them and ops that decode behind.

class Gather {
 public:
  Gather(ProgramRef program, const FlatParameter& flat)
      : program_(program), flat_(flat), segment_(program, flat.segment), context_(program.step_context()) {
    if (!flat.shards_parameters) return;
    in_codes_ = flat.quantized && context_.gather_bits > 0 && flat.codes == none;
    const bool reads_codes = flat.codes != none;
    own_ = reads_codes ? flat.own_codes : flat.own_parameters;
    all_ = reads_codes ? flat.codes : flat.parameters;
    if (has_copy()) copy_ = add_copy(reads_codes);
    if (in_codes_) add_codes();
    if (has_copy() && (reads_codes || in_codes_)) program.lie_within(own_, copy_, flat.across);
  }

  void encode() {
    if (!in_codes_) return;
    const FunctionKind function = has_copy() ? FunctionKind::renew : FunctionKind::gather;
    if (context_.gather_fp8)
      segment_.insert_on(function, none, "encode_fp8", {flat_.own_parameters, own_});
    else
      segment_.insert_on(function, none, "encode", {flat_.own_parameters, own_}, {bits()});
  }

  void gather() {
    if (!flat_.shards_parameters && !is_alone())
      segment_.insert_on(FunctionKind::update, none, "all_gather", {flat_.own_parameters, flat_.parameters},
                         {axis_of(flat_.ranks), {"dim", 0}, parts_of(flat_.ranks)});
    if (!flat_.shards_parameters || is_alone()) return;
    if (!has_copy()) return all_gather(FunctionKind::gather, own_, all_, flat_.ranks, 0);
    all_gather(FunctionKind::renew, own_, copy_, flat_.across, 0);
    all_gather(FunctionKind::gather, copy_, all_, flat_.within, 1);
  }

  void decode() {
    if (!in_codes_) return;
    const AttrValue to{"to", static_cast<double>(program_.value(flat_.parameters).dtype)};
    if (context_.gather_fp8)
      segment_.insert_on(FunctionKind::gather, none, "decode_fp8", {all_, flat_.parameters}, {to});
    else
      segment_.insert_on(FunctionKind::gather, none, "decode", {all_, flat_.parameters}, {to, bits()});
  }

 private:
  bool is_alone() const { return flat_.ranks.extent == 1; }
  bool has_copy() const { return flat_.across.number >= 0; }
  AttrValue bits() const { return {"bits", static_cast<double>(context_.gather_bits)}; }
  std::int64_t bytes_of_codes() const {
    return flat_.elements / code_block * code_block_bytes(context_.gather_bits);
  }

  // Adds the secondary copy, of what travels.
  Id add_copy(bool reads_codes) const {
    return program_.flat_buffer(
        {.name = reads_codes || in_codes_ ? "copy.codes" : "copy",
         .like = flat_.parameters,
         .dtype = reads_codes || in_codes_ ? DType::u8 : program_.value(flat_.parameters).dtype,
         .elements = in_codes_ ? bytes_of_codes() : flat_.elements,
         .ranks = flat_.within,
         .lifetime = BufferLifetime::run});
  }

  void add_codes() {
    own_ = program_.flat_buffer({.name = "codes.own",
                                 .like = flat_.own_parameters,
                                 .elements = bytes_of_codes(),
                                 .lifetime = is_alone() ? BufferLifetime::use : BufferLifetime::function});
    all_ = own_;
    if (is_alone()) return;
    all_ = program_.flat_buffer({.name = "codes",
                                 .like = flat_.parameters,
                                 .elements = bytes_of_codes(),
                                 .lifetime = BufferLifetime::use});
    if (!has_copy()) program_.lie_within(own_, all_, flat_.ranks);
  }

  // With `direct`, each rank's shard is stretches of the whole, which arrive where they belong.
  void all_gather(FunctionKind function, Id from, Id to, AxisInfo ranks, int dim) const {
    segment_.insert_on(function, none, "all_gather", {from, to},
                       {axis_of(ranks),
                        {"dim", static_cast<double>(dim)},
                        parts_of(ranks),
                        {"direct", static_cast<double>(dim)}});
  }

  const ProgramRef program_;
  const FlatParameter& flat_;
  const Segment segment_;
  const StepContext context_;
  bool in_codes_ = false;
  Id own_ = none, all_ = none, copy_ = none;  // what is gathered, into what; none: as it is, behind an update
};

// Gathers parameters: before each use where they are sharded, otherwise behind their update.
void gather_parameters(ProgramRef program, const std::vector<FlatParameter>& flat) {
  std::vector<Gather> all;
  all.reserve(flat.size());
  for (const FlatParameter& one : flat) all.emplace_back(program, one);
  for (void (Gather::*const step)() : {&Gather::encode, &Gather::gather, &Gather::decode})
    for (Gather& one : all) (one.*step)();
}

// ------------------------------------------------------------------- reduce gradients
// Sums the gradients of a segment's flat parameters over the ranks, each rank its shard: by a reduce-scatter
// or, in codes, by an all-to-all of them, after which each rank adds up what all have sent it. Codes are made
// of blocks of the whole tensor, by each rank before anything is sent, so that the numbers do not depend on
// how many ranks there are; a rank alone makes codes as well, and sends nothing.
//
// All flat parameters of a segment take each step together, so that their collectives stand one after another
// with nothing computed in between.

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

// Sums gradients over the ranks: each gets the sum of its shard.
void reduce_gradients(ProgramRef program, const std::vector<FlatParameter>& flat) {
  std::vector<Reduction> all;
  for (const FlatParameter& one : flat)
    if (one.gradients != none) all.emplace_back(program, one);
  for (void (Reduction::*const step)() : {&Reduction::prepare, &Reduction::scatter, &Reduction::add_up_codes,
                                          &Reduction::sum_further, &Reduction::keep})
    for (Reduction& one : all) (one.*step)();
}

}  // namespace
}  // namespace prun::zero

// ------------------------------------------------------------------- zero

namespace prun {
namespace {

class Zero final : public Strategy {
 public:
  explicit Zero(const Options& options)
      : axes_(options.texts("axis")),
        secondary_(options.has("secondary") ? options.texts("secondary") : std::vector<std::string>{}),
        stage_(options.integer("stage")),
        once_(options.text("reduce") == "step") {}

  void check(const Options&, Problems problems) override {
    if (stage_ == 2 && once_)
      problems.add(
          "reduce",
          "stage 2 with reduce = \"step\" keeps gradients whole, which is stage 1; choose stage = 1, or "
          "reduce = \"microbatch\"");
    if (stage_ < 3 && !secondary_.empty())
      problems.add("secondary", "secondary is a copy of sharded parameters, and stage " +
                                    std::to_string(stage_) +
                                    " does not shard them; choose stage = 3, or leave secondary out");
  }

  void apply(Phase phase, ProgramRef program) override {
    if (stage_ == 0) return;
    if (phase == Phase::state) return shard(program);
    const Array<FlatParameter> all = program.flat_parameters();
    for (const FlatParameter* first = all.begin(); first != all.end();) {
      const FlatParameter* const behind = std::find_if(
          first, all.end(), [&](const FlatParameter& flat) { return flat.segment != first->segment; });
      const std::vector<FlatParameter> of_segment(first, behind);
      zero::reduce_gradients(program, of_segment);
      zero::gather_parameters(program, of_segment);
      first = behind;
    }
  }

 private:
  void shard(ProgramRef program) const {
    const std::vector<Text> secondary(secondary_.begin(), secondary_.end());
    program.shard_state(axes_, {.gradients = stage_ >= 2 && !once_,
                                .parameters = stage_ >= 3,
                                .secondary = {secondary.data(), secondary.size()}});
  }

  std::vector<std::string> axes_, secondary_;
  std::int64_t stage_;
  bool once_;
};

}  // namespace
}  // namespace prun

PRUN_PLUGIN(strategy, prun::Zero, "zero", "0.1.0",
            "Shards optimizer state, gradients and parameters (ZeRO, FSDP)",
            "phase=state,collectives; axis=batch; tune=exact; varies=stage:1|2|3, reduce; "
            "also=fsdp,fsdp2,hsdp,deepspeed,distributed_optimizer; frees=stage:1, stage:2, stage:3; "
            "bench=stage:0 reduce:microbatch, stage:1 "
            "reduce:microbatch, stage:2 reduce:microbatch, stage:3",
            "axis   | names  | dp | | Mesh axis to shard over, or several: each parameter over those that "
            "sum its gradient\n"
            "stage  | int    | 1  | 0..3 | What is sharded: 0: nothing; 1: optimizer state; 2: and "
            "gradients; 3: and parameters\n"
            "reduce | choice | microbatch | microbatch,step | With stage 3, when gradients are reduced: "
            "microbatch: after each one, as with stage 2; step: once a step, which communicates less but "
            "keeps them unsharded until then\n"
            "secondary | names | none | | With stage 3 over several axes: the last of them, those within a "
            "host, whose ranks hold a secondary copy of the parameters (hpZ); it is refreshed once a step, "
            "and each use gathers over these axes only\n");
