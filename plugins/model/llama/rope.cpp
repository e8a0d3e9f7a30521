#include "rope.hpp"

#include <cmath>

#include "config_keys.hpp"

namespace prun {
namespace {

double yarn_scale(double factor, double by) { return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1; }

void read_yarn(const Options& config, const std::string& table, Rope& rope) {
  rope.low = number_or(config, table + "beta_slow", 1);
  rope.high = number_or(config, table + "beta_fast", 32);
  rope.original = config.number(table + "original_max_position_embeddings");
  expect_flag(config, table + "truncate", true);
  const double some = number_or(config, table + "mscale", 0), all = rope.mscale;
  const double attention = some != 0 && all != 0
                               ? yarn_scale(rope.factor, some) / yarn_scale(rope.factor, all)
                               : yarn_scale(rope.factor, 1);
  rope.attention = number_or(config, table + "attention_factor", attention);
  if (rope.factor == 1 && rope.attention != 1)
    throw_error(ErrorCode::bad_input, "'", table, "attention_factor' is ", rope.attention, " where '", table,
                "factor' is 1, and this model scales queries and keys with slower positions only");
}

// Reads a table, or the file itself where `table` is empty.
Rope read_rope(const Options& config, const std::string& table, double base) {
  Rope rope;
  rope.base = number_or(config, table + "rope_theta", number_or(config, "rope_theta", base));
  const std::string partial = table + "partial_rotary_factor";
  if (number_or(config, partial, 1) != 1)
    throw_error(ErrorCode::bad_input, "'", partial, "' is ", config.number(partial),
                ", and this model turns whole heads");
  if (table.empty()) return rope;
  for (const char* own : {"full_attention", "sliding_attention"})
    expect_absent(config, table + own, "positions that turn otherwise from layer to layer");
  const std::string kind = config.has(table + "rope_type") ? table + "rope_type" : table + "type";
  expect_text(config, kind, {"llama3", "default", "linear", "yarn"});
  if (!config.has(kind) || config.text(kind) == "default") return rope;
  rope.scaling = config.text(kind);
  rope.factor = config.number(table + "factor");
  rope.mscale = number_or(config, table + "mscale_all_dim", 0);
  if (rope.scaling == "yarn") read_yarn(config, table, rope);
  if (rope.scaling != "llama3") return rope;
  rope.low = config.number(table + "low_freq_factor");
  rope.high = config.number(table + "high_freq_factor");
  rope.original = config.number(table + "original_max_position_embeddings");
  return rope;
}

// Releases of transformers differ in which of two tables counts, and in which of two bases.
void check_alike(const Rope& rope, const Rope& other, const char* one, const char* two) {
  const bool yarn = rope.scaling == "yarn";
  const struct {
    const char* name;
    double here, there;
  } parts[] = {{"rope_theta", rope.base, other.base},
               {"factor", rope.factor, other.factor},
               {"rope_type", rope.scaling_number(), other.scaling_number()},
               {yarn ? "beta_slow" : "low_freq_factor", rope.low, other.low},
               {yarn ? "beta_fast" : "high_freq_factor", rope.high, other.high},
               {"attention_factor", rope.attention, other.attention},
               {"mscale_all_dim", rope.mscale, other.mscale},
               {"original_max_position_embeddings", rope.original, other.original}};
  for (const auto& part : parts)
    if (part.here != part.there)
      throw_error(ErrorCode::bad_input, "'", one, "' makes '", part.name, "' ", part.here, " and '", two,
                  "' makes it ", part.there, "; leave one of them");
}

// Older files have the base beside a table of what is slowed down, newer ones have both in one table.
Rope read_alike(const Options& config, double base) {
  const char* const newer = "rope_parameters";
  const char* const older = "rope_scaling";
  const Rope bare = read_rope(config, "", base);
  Rope rope = bare;
  if (config.has(older)) rope = read_rope(config, std::string(older) + ".", base);
  if (!config.has(newer)) return rope;
  Rope now = read_rope(config, std::string(newer) + ".", base);
  if (config.has(older)) check_alike(now, rope, newer, older);
  if (config.has("rope_theta") && bare.base != now.base)
    throw_error(ErrorCode::bad_input, "'rope_theta' is ", bare.base, " and 'rope_parameters.rope_theta' ",
                now.base, "; leave one of them");
  return now;
}

// Windowed layers with a base of their own have a table for each kind of layer, or there are two numbers.
RopeConfig read_by_kind(const Options& config, const Family& family) {
  constexpr double of_windows = 10000;
  if (!config.has("rope_parameters"))
    return {read_alike(config, family.rope_base), number_or(config, "rope_local_base_freq", of_windows)};
  const std::string full = "rope_parameters.full_attention.", near = "rope_parameters.sliding_attention.";
  for (const char* old : {"rope_scaling", "rope_theta", "rope_local_base_freq"})
    if (config.has(old))
      throw_error(ErrorCode::bad_input, "'", old, "' stands beside 'rope_parameters'; leave one of them");
  const Rope windowed = read_rope(config, near, of_windows);
  if (windowed.factor != 1)
    throw_error(ErrorCode::bad_input, "'", near, "factor' is ", windowed.factor,
                ", and positions of windowed layers are not slowed down in this model");
  return {read_rope(config, full, family.rope_base), windowed.base};
}

}  // namespace

RopeConfig read_rope(const Options& config, const Family& family) {
  if (family.base_by_kind) return read_by_kind(config, family);
  if (!family.slowed)
    for (const char* table : {"rope_parameters", "rope_scaling"})
      for (const char* kind : {".rope_type", ".type"})
        expect_text(config, std::string(table) + kind, {"default"});
  return {read_alike(config, family.rope_base), 0};
}

Rope Rope::of(const Options& options) {
  return {options.number("rope_base"),      options.number("rope_factor"), options.text("rope_scaling"),
          options.number("rope_low"),       options.number("rope_high"),   options.number("rope_original"),
          options.number("rope_attention"), options.number("rope_mscale")};
}

Rope RopeConfig::of_layer(bool windowed) const {
  Rope own = rope;
  if (windowed && window_base != 0) {
    own.base = window_base;
    own.factor = 1;
  }
  return own;
}

std::vector<AttrValue> Rope::attrs(double query_scale) const {
  return {{"base", base},
          {"factor", factor},
          {"low", low},
          {"high", high},
          {"original", original},
          {"scaling", scaling_number()},
          {"query_scale", query_scale},
          {"key_scale", key_scale()}};
}

double Rope::score_scale() const {
  const double root = yarn_scale(factor, mscale);
  return root * root;
}

void write_rope_options(const RopeConfig& config, const Family& family, ConfigWriter& options) {
  const Rope& rope = config.rope;
  options.set("rope_base", rope.base);
  options.set("rope_factor", rope.factor);
  if (config.window_base != 0) options.set("rope_base_window", config.window_base);
  if (rope.factor == 1) return;
  if (rope.scaling != "llama3") options.set("rope_scaling", rope.scaling);
  if (family.latent && rope.mscale != 0) options.set("rope_mscale", rope.mscale);
  if (rope.scaling == "linear") return;
  options.set("rope_low", rope.low);
  options.set("rope_high", rope.high);
  options.set("rope_original", rope.original);
  if (rope.attention != 1) options.set("rope_attention", rope.attention);
}

void write_rope_config(const RopeConfig& written, ConfigWriter& config) {
  const Rope& rope = written.rope;
  config.set("rope_theta", rope.base);
  if (written.window_base != 0) config.set("rope_local_base_freq", written.window_base);
  if (rope.factor == 1) return;
  config.set("rope_scaling.rope_type", rope.scaling);
  config.set("rope_scaling.factor", rope.factor);
  if (rope.mscale != 0) config.set("rope_scaling.mscale_all_dim", rope.mscale);
  if (rope.scaling == "linear") return;
  const bool yarn = rope.scaling == "yarn";
  config.set(yarn ? "rope_scaling.beta_slow" : "rope_scaling.low_freq_factor", rope.low);
  config.set(yarn ? "rope_scaling.beta_fast" : "rope_scaling.high_freq_factor", rope.high);
  if (yarn) config.set("rope_scaling.attention_factor", rope.attention);
  config.set("rope_scaling.original_max_position_embeddings", static_cast<std::int64_t>(rope.original));
}

}  // namespace prun
