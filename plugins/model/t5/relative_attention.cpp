#include "relative_attention.hpp"

#include <cmath>

#include "scaled.hpp"

namespace prun {

RelativeAttention::RelativeAttention(const Options& options)
    : hidden{"hidden", options.integer("hidden")},
      heads{"heads", options.integer("heads")},
      head_dim{"head_dim", options.integer("head_dim")},
      buckets{"buckets", options.integer("buckets")},
      distance(options.integer("distance")) {}

Id RelativeAttention::table(const Segment& s) const {
  const Id distances = s.weight("distances", {heads, buckets}, scaled(hidden));
  return s.carry(s.op("scale", {distances}, {{"factor", 1.0}}));
}

// Scores are not divided by the root of head_dim, so queries and keys start smaller, each by its root.
Id RelativeAttention::among(const Segment& s, Id x, Id table, bool causal) const {
  const Dim packed{"packed", 3};
  const double root = std::sqrt(static_cast<double>(head_dim.extent));
  const Id weight = s.matrix(s.weight("qkv.weight", {heads, packed, head_dim, hidden},
                                      scaled(static_cast<double>(hidden.extent) * root)),
                             {.batch = 1, .columns = 1, .cuts = {1, 2}});
  const std::vector<Id> of = s.ops("split_heads", {s.op("linear", {x, weight, none})}, 3);
  const Id seen = s.op("attention_biased", {of[0], of[1], of[2], table},
                       {{"causal", causal ? 1.0 : 0.0}, {"distance", static_cast<double>(distance)}});
  return projected(s, "proj.weight", seen);
}

// Scores are not divided by the root of head_dim, as that op would do.
Id RelativeAttention::across(const Segment& s, Id x, Id memory) const {
  const Dim queries{"queries", 1};
  const auto width = static_cast<double>(hidden.extent), head_width = static_cast<double>(head_dim.extent);
  const auto weight = [&](const char* name, const std::vector<Dim>& dims, double fan_in) {
    return s.matrix(s.weight(name, dims, scaled(fan_in)), {.columns = 1});
  };
  const Id q =
      s.op("linear", {x, weight("across.q", {heads, queries, head_dim, hidden}, width * head_width), none});
  const Id k = s.op("linear", {memory, weight("across.k", {heads, head_dim, hidden}, width), none});
  const Id v = s.op("linear", {memory, weight("across.v", {heads, head_dim, hidden}, width), none});
  const double root = std::sqrt(head_width);
  const Id scaled_q = s.op("scale", {q}, {{"factor", root}});
  return projected(s, "across.proj", s.op("attention_across", {scaled_q, k, v}, {{"causal", 0}}));
}

Id RelativeAttention::projected(const Segment& s, const std::string& name, Id seen) const {
  const Dim queries{"queries", 1};
  const Id weight = s.matrix(s.weight(name, {hidden, heads, queries, head_dim},
                                      scaled(static_cast<double>(heads.extent * head_dim.extent))),
                             {.columns = 3});
  return s.op("linear", {seen, weight, none}, {{"in_dims", 3}});
}

}  // namespace prun
