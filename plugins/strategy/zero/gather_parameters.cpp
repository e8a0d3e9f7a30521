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
#include "collectives.hpp"
#include "prun/block_codes.hpp"

namespace prun::zero {
namespace {

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

}  // namespace

void gather_parameters(ProgramRef program, const std::vector<FlatParameter>& flat) {
  std::vector<Gather> all;
  all.reserve(flat.size());
  for (const FlatParameter& one : flat) all.emplace_back(program, one);
  for (void (Gather::*const step)() : {&Gather::encode, &Gather::gather, &Gather::decode})
    for (Gather& one : all) (one.*step)();
}

}  // namespace prun::zero
