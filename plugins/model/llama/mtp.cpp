// Builds multi-token prediction, as DeepSeek-V3 is trained: modules behind the model, the k-th of which
// predicts for each position the token k + 1 ahead. It joins what the module before (the first: the model)
// has made of the position with the embedding of the token k ahead, and has a block and a norm of its own;
// table and head are the model's. All modules stand in the head's segment, so that a stage of a pipeline has
// them together. Their losses are no part of `loss_sum`, so runs that do not train leave them out.
#include "llama.hpp"

namespace prun {

namespace {

std::string name_of_module(std::int64_t k) { return "mtp" + std::to_string(k); }

}  // namespace

LayerRun Llama::mtp_layer(std::int64_t k) const {
  const std::int64_t layer = layers_ + k - 1;
  return {"head." + name_of_module(k), layer, 1, windows_.has(layer), experts_.has(layer)};
}

void Llama::predict_ahead(const Segment& head, Id made, const Shared& shared) const {
  if (mtp_.layers == 0) return;
  const Id scale = head.op("scale", {head.runtime("inv_targets")},
                           {{"factor", mtp_.loss / static_cast<double>(mtp_.layers)}});
  for (std::int64_t k = 1; k <= mtp_.layers; ++k) {
    const SegmentPart s(head, name_of_module(k));
    made = mtp_module(s, k, made, shared);
    const Id targets = s.op("ahead", {s.targets()}, {{"by", static_cast<double>(k)}, {"otherwise", -1.0}});
    s.op("lm_head", {made, shared.head, targets, scale, s.tally("loss", {{"per_target", 1}})});
  }
}

// Returns the head's input, which is also that of the next module.
Id Llama::mtp_module(const SegmentPart& s, std::int64_t k, Id made, const Shared& shared) const {
  const Dim both{"hidden_pair", 2 * hidden_.extent};
  const Id tokens = s.op("ahead", {s.tokens()}, {{"by", static_cast<double>(k)}});
  const Id token = norm(s, embedded(s, tokens, shared.tokens), "norm_token");
  const Id pair = s.op("pair", {token, norm(s, made, "norm_made")});
  const Id weight = s.matrix(s.weight("joined.weight", {hidden_, both}, normal(0.02)), {.columns = 1});
  return norm(s, layer(s, mtp_layer(k), shared.seq, s.op("linear", {pair, weight, none})), "norm");
}

void Llama::add_mtp(ForeignWeights& weights) const {
  for (std::int64_t k = 1; k <= mtp_.layers; ++k) {
    const LayerRun run = mtp_layer(k);
    const auto add = [&](const char* parameter, const char* name) {
      weights.tensors.push_back(
          {run.segment + "." + parameter, std::string("model.layers.*.") + name, "", "", 0, 0, run.first});
    };
    add("norm_token.gain", "enorm.weight");
    add("norm_made.gain", "hnorm.weight");
    add("joined.weight", "eh_proj.weight");
    add("norm.gain", "shared_head.norm.weight");
    add_layer(run, weights);
    // These are the model's own tensors, once more.
    for (const char* shared : {".embed_tokens.weight", ".shared_head.head.weight"})
      weights.ignored.push_back("model.layers." + std::to_string(run.first) + shared);
  }
}

}  // namespace prun
