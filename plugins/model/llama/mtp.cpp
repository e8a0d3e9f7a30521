#include "mtp.hpp"

namespace prun {
namespace {

std::string name_of_module(std::int64_t k) { return "mtp" + std::to_string(k); }

}  // namespace

MultiTokenPrediction::MultiTokenPrediction(const Options& options)
    : modules_(options.integer("mtp_layers")),
      loss_(options.number("mtp_loss")),
      layers_(options.integer("layers")) {}

// A caller that wants the shapes of weights alone passes a single token.
void MultiTokenPrediction::check(const ModelContext& context) const {
  if (context.seq > 1 && modules_ >= context.seq)
    throw_error(ErrorCode::bad_input, "model.mtp_layers = ", modules_,
                " looks as far ahead as model.seq = ", context.seq, " tokens; take fewer");
}

void MultiTokenPrediction::build(const SegmentPart& head, const DecoderBlock& block, Id made,
                                 const Shared& shared) const {
  if (!any()) return;
  const Id scale =
      head.op("scale", {head.runtime("inv_targets")}, {{"factor", loss_ / static_cast<double>(modules_)}});
  for (std::int64_t k = 1; k <= modules_; ++k) {
    const SegmentPart s(head, name_of_module(k));
    made = build_module(s, block, k, made, shared);
    const Id targets = s.op("ahead", {s.targets()}, {{"by", static_cast<double>(k)}, {"otherwise", -1.0}});
    s.op("lm_head", {made, shared.head, targets, scale, s.tally("loss", {{"per_target", 1}})});
  }
}

// Returns the head's input, which is also that of the next module.
Id MultiTokenPrediction::build_module(const SegmentPart& s, const DecoderBlock& block, std::int64_t k,
                                      Id made, const Shared& shared) const {
  const ResidualStream& stream = block.stream;
  const Dim both{"hidden_pair", 2 * stream.hidden.extent};
  const Id tokens = s.op("ahead", {s.tokens()}, {{"by", static_cast<double>(k)}});
  const Id token = stream.norm(s, stream.embedded(s, tokens, shared.tokens), "norm_token");
  const Id pair = s.op("pair", {token, stream.norm(s, made, "norm_made")});
  const Id weight = s.matrix(s.weight("joined.weight", {stream.hidden, both}), {.columns = 1});
  const Id joined = s.op("linear", {pair, weight, none});
  return stream.norm(s, block.build(s, block.kind_of(layer_of(k)), shared.seq, joined), "norm");
}

void MultiTokenPrediction::write_config(const Family& family, ConfigWriter& config) const {
  if (any() && !family.mtp) throw_no_key(family, "mtp_layers", "modules that predict further tokens");
  if (any()) config.set("num_nextn_predict_layers", modules_);
}

void MultiTokenPrediction::add_weights(const DecoderBlock& block, ForeignWeights& weights) const {
  for (std::int64_t k = 1; k <= modules_; ++k) {
    const std::int64_t layer = layer_of(k);
    const LayerWeights module(weights, "head." + name_of_module(k), layer);
    module.add("norm_token.gain", "enorm.weight");
    module.add("norm_made.gain", "hnorm.weight");
    module.add("joined.weight", "eh_proj.weight");
    module.add("norm.gain", "shared_head.norm.weight");
    block.add_weights(block.kind_of(layer), module);
    // These are the model's own tensors, once more.
    for (const char* shared :
         {".embed_tokens.weight=model.embed_tokens.weight", ".shared_head.head.weight=lm_head.weight"})
      weights.ignored.push_back("model.layers." + std::to_string(layer) + shared);
  }
}

}  // namespace prun
