#include "rope.hpp"

#include <algorithm>
#include <cmath>

#include "config_keys.hpp"

namespace prun {
namespace {

double yarn_scale(double factor, double by) { return factor <= 1 ? 1 : 0.1 * by * std::log(factor) + 1; }

void read_yarn(const Options& config, const std::string& table, Rope& rope) {
  rope.low = number_or(config, table + "beta_slow", 1);
  rope.high = number_or(config, table + "beta_fast", 32);
  rope.original = config.number(table + "original_max_position_embeddings");
  rope.whole = !config.has(table + "truncate") || config.flag(table + "truncate");
  const double some = number_or(config, table + "mscale", 0), all = rope.mscale;
  const double attention = some != 0 && all != 0
                               ? yarn_scale(rope.factor, some) / yarn_scale(rope.factor, all)
                               : yarn_scale(rope.factor, 1);
  rope.attention = number_or(config, table + "attention_factor", attention);
  if (rope.factor == 1 && rope.attention != 1)
    throw_error(ErrorCode::bad_input, "'", table, "attention_factor' is ", rope.attention, " where '", table,
                "factor' is 1, and this model scales queries and keys with slower positions only");
}

// Returns what queries and keys are multiplied by where tables with lists do not say it.
double scale_of_lists(double factor, std::int64_t until) {
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(until)));
}

// Reads the lists of longrope. How long shorter sequences are stands beside the table, which may repeat it.
void read_lists(const Options& config, const Family& family, const std::string& table, Rope& rope) {
  const char* const key = "original_max_position_embeddings";
  rope.until = integer_or(config, key, family.lists_switch);
  if (integer_or(config, table + key, rope.until) != rope.until)
    throw_error(ErrorCode::bad_input, "'", table, key, "' is ", config.integer(table + key), ", and '", key,
                config.has(key) ? "' is " : "' is missing, which means ", rope.until,
                ", by which this model goes; make them alike");
  rope.shorter = config.numbers(table + "short_factor");
  rope.longer = config.numbers(table + "long_factor");
  const auto most = static_cast<double>(integer_or(config, "max_position_embeddings", family.lists_switch));
  const double factor = number_or(config, table + "factor", most / static_cast<double>(rope.until));
  rope.attention = number_or(config, table + "attention_factor", scale_of_lists(factor, rope.until));
}

// Returns by how much alpha raises a base, as in Hunyuan's files, or 0 where there is none.
double raised_by_alpha(const Options& config, const std::string& table) {
  const double alpha = number_or(config, table + "alpha", 0);
  if (alpha == 0) return 0;
  const auto heads = static_cast<double>(config.integer("num_attention_heads"));
  const double width =
      number_or(config, "head_dim", std::floor(config.number("hidden_size") / std::max(heads, 1.0)));
  return std::pow(alpha, width / (width - 2));
}

// Reads a table, or the file itself where `table` is empty.
Rope read_rope(const Options& config, const Family& family, const std::string& table, double base) {
  Rope rope;
  rope.base = number_or(config, table + "rope_theta", number_or(config, "rope_theta", base));
  const std::string partial = table + "partial_rotary_factor";
  if (family.partial == 0 && number_or(config, partial, 1) != 1)
    throw_error(ErrorCode::bad_input, "'", partial, "' is ", config.number(partial),
                ", and this model turns whole heads");
  if (table.empty()) return rope;
  for (const char* own : {"full_attention", "sliding_attention"})
    expect_absent(config, table + own, "positions that turn otherwise from layer to layer");
  const std::string kind = config.has(table + "rope_type") ? table + "rope_type" : table + "type";
  if (family.lists_switch != 0)
    expect_text(config, kind, {"default", "longrope", "su"});
  else
    expect_text(config, kind, {"llama3", "default", "linear", "yarn", "dynamic", "deepseek_yarn"});
  if (!config.has(kind) || config.text(kind) == "default") return rope;
  if (family.lists_switch != 0) {
    read_lists(config, family, table, rope);
    return rope;
  }
  const double raised = family.alpha_base ? raised_by_alpha(config, table) : 0;
  if (config.text(kind) == "dynamic" && raised != 0) {
    rope.base *= raised;
    return rope;
  }
  rope.scaling = config.text(kind) == "deepseek_yarn" ? "yarn" : config.text(kind);
  rope.factor = config.number(table + "factor");
  rope.mscale = number_or(config, table + "mscale_all_dim", 0);
  if (rope.scaling == "yarn") read_yarn(config, table, rope);
  if (family.growth_said) rope.growth = number_or(config, table + "llama_4_scaling_beta", 0);
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
               {"truncate", rope.whole ? 1.0 : 0.0, other.whole ? 1.0 : 0.0},
               {yarn ? "beta_slow" : "low_freq_factor", rope.low, other.low},
               {yarn ? "beta_fast" : "high_freq_factor", rope.high, other.high},
               {"attention_factor", rope.attention, other.attention},
               {"mscale_all_dim", rope.mscale, other.mscale},
               {"llama_4_scaling_beta", rope.growth, other.growth},
               {"original_max_position_embeddings", rope.original, other.original}};
  for (const auto& part : parts)
    if (part.here != part.there)
      throw_error(ErrorCode::bad_input, "'", one, "' makes '", part.name, "' ", part.here, " and '", two,
                  "' makes it ", part.there, "; leave one of them");
  if (rope.shorter != other.shorter || rope.longer != other.longer)
    throw_error(ErrorCode::bad_input, "'", one, "' and '", two,
                "' list other numbers as 'short_factor' or 'long_factor'; leave one of them");
}

// Older files have the base beside a table of what is slowed down, newer ones have both in one table.
Rope read_alike(const Options& config, const Family& family) {
  const double base = family.rope_base;
  const char* const newer = "rope_parameters";
  const char* const older = "rope_scaling";
  if (family.slowed_by && !config.has(newer) && !config.has(older))
    throw_error(ErrorCode::bad_input, "'", newer, "' and '", older,
                "' are missing, by which positions turn slower in files of model_type '", family.model_type,
                "'; write one of them");
  const Rope bare = read_rope(config, family, "", base);
  Rope rope = bare;
  if (config.has(older)) rope = read_rope(config, family, std::string(older) + ".", base);
  if (!config.has(newer)) return rope;
  Rope now = read_rope(config, family, std::string(newer) + ".", base);
  if (config.has(older)) check_alike(now, rope, newer, older);
  if (config.has("rope_theta") && bare.base != now.base)
    throw_error(ErrorCode::bad_input, "'rope_theta' is ", bare.base, " and 'rope_parameters.rope_theta' ",
                now.base, "; leave one of them");
  return now;
}

// Older files have a number for windowed layers, or what they turn by depends on the release.
double older_base_of_windows(const Options& config, const Family& family, const Rope& full) {
  if (family.rope_keys == RopeKeys::local_base)
    return number_or(config, "rope_local_base_freq", family.window_base);
  if (full.base != family.window_base)
    throw_error(ErrorCode::bad_input, "'rope_theta' is ", full.base,
                ", and releases of transformers differ in whether windowed layers turn by it or by ",
                family.window_base, "; write 'rope_parameters' with a table for each kind of layer");
  return full.base;
}

// Windowed layers with a base of their own have a table for each kind of layer, or there are two numbers.
RopeConfig read_by_kind(const Options& config, const Family& family) {
  if (!config.has("rope_parameters")) {
    const Rope all = read_alike(config, family);
    return {all, older_base_of_windows(config, family, all)};
  }
  const std::string full = "rope_parameters.full_attention.", near = "rope_parameters.sliding_attention.";
  for (const char* old : {"rope_scaling", "rope_theta", "rope_local_base_freq"})
    if (config.has(old))
      throw_error(ErrorCode::bad_input, "'", old, "' stands beside 'rope_parameters'; leave one of them");
  const Rope windowed = read_rope(config, family, near, family.window_base),
             others = read_rope(config, family, full, family.rope_base);
  if (family.rope_keys == RopeKeys::tables && windowed == others) return {others, 0};
  if (windowed.factor != 1)
    throw_error(ErrorCode::bad_input, "cannot read '", near, "factor' = ", windowed.factor,
                ": layers with a window have no rope scaling in this model; set it to 1");
  return {others, windowed.base};
}

}  // namespace

RopeConfig read_rope(const Options& config, const Family& family) {
  if (family.rope_keys != RopeKeys::alike) return read_by_kind(config, family);
  if (!family.slowed && family.lists_switch == 0)
    for (const char* table : {"rope_parameters", "rope_scaling"})
      for (const char* kind : {".rope_type", ".type"})
        expect_text(config, std::string(table) + kind, {"default"});
  return {read_alike(config, family), 0};
}

// Reads the factor where a table has it, where older files have it, and what MiniMax has instead.
std::int64_t read_rope_channels(const Options& config, const Family& family, std::int64_t head_dim) {
  if (family.partial == 0) return 0;
  const auto width = static_cast<double>(head_dim);
  double factor = config.has("rotary_dim") ? config.number("rotary_dim") / width : family.partial;
  for (const char* key : {"partial_rotary_factor", "rope_scaling.partial_rotary_factor",
                          "rope_parameters.partial_rotary_factor"})
    factor = number_or(config, key, factor);
  const auto channels = static_cast<std::int64_t>(width * factor);
  if (channels < 2 || channels > head_dim || channels % 2 != 0)
    throw_error(ErrorCode::bad_input, "'partial_rotary_factor' is ", factor, ", and so turn ", channels,
                " of a head's ", head_dim, " channels, and this model turns pairs of them");
  return channels == head_dim ? 0 : channels;
}

// Readers take the whole number below the product.
void write_rope_channels(std::int64_t channels, const Family& family, std::int64_t head_dim,
                         ConfigWriter& config) {
  if (family.partial == 0) {
    if (channels != 0 && channels != head_dim)
      throw_no_key(family, "rope_channels", "channels of a head that do not turn");
    return;
  }
  const auto width = static_cast<double>(head_dim),
             turned = channels == 0 ? width : static_cast<double>(channels);
  double factor = turned / width;
  while (width * factor < turned) factor = std::nextafter(factor, 2.0);
  config.set("partial_rotary_factor", factor);
}

Rope Rope::of(const Family& family, const Options& options) {
  return {.base = options.number("rope_base"),
          .factor = options.number("rope_factor"),
          .scaling = options.text("rope_scaling"),
          .low = options.number("rope_low"),
          .high = options.number("rope_high"),
          .original = options.number("rope_original"),
          .attention = options.number("rope_attention"),
          .mscale = options.number("rope_mscale"),
          .channels = options.integer("rope_channels"),
          .growth = options.number("rope_growth"),
          .neighbours = family.neighbours,
          .whole = options.flag("rope_truncate"),
          .shorter = options.numbers("rope_short"),
          .longer = options.numbers("rope_long"),
          .until = options.integer("rope_switch")};
}

Rope RopeConfig::of_layer(bool windowed) const {
  Rope own = rope;
  if (windowed && window_base != 0) {
    own.base = window_base;
    own.factor = 1;
  }
  return own;
}

void RopeConfig::check_lists(std::int64_t pairs, bool latent) const {
  if (rope.until == 0) {
    if (!rope.shorter.empty() || !rope.longer.empty())
      throw_error(ErrorCode::bad_input,
                  "model.rope_short and rope_long say how pairs turn in sequences of model.rope_switch "
                  "positions at most and in longer ones; set model.rope_switch");
    return;
  }
  if (rope.factor != 1 || latent || window_base != 0)
    throw_error(ErrorCode::bad_input,
                "model.rope_switch is of attention whose pairs turn by lists alone; leave out "
                "model.rope_factor, latent and rope_base_window");
  const struct {
    const char* option;
    const std::vector<double>& list;
  } lists[] = {{"rope_short", rope.shorter}, {"rope_long", rope.longer}};
  for (const auto& one : lists)
    if (static_cast<std::int64_t>(one.list.size()) != pairs)
      throw_error(ErrorCode::bad_input, "model.", one.option, " lists ", one.list.size(), " numbers, and ",
                  pairs, " pairs of a head turn; list one for each");
}

void RopeConfig::check_length(std::int64_t seq, std::int64_t positions) const {
  if (rope.scaling == "dynamic" && rope.factor != 1 && positions > 0 && seq > positions)
    throw_error(ErrorCode::bad_input, "model.rope_scaling = \"dynamic\" turns positions slower beyond ",
                "model.positions = ", positions, ", and model.seq is ", seq,
                "; make model.seq at most that, or choose another model.rope_scaling");
}

std::vector<AttrValue> Rope::attrs(double query_scale) const {
  return {{"base", base},
          {"factor", slowed_by()},
          {"low", low},
          {"high", high},
          {"original", original},
          {"scaling", scaling_number()},
          {"query_scale", query_scale},
          {"key_scale", key_scale()}};
}

// Multiplies the channels that turn by `turned_scale` where only a part of a head does.
std::vector<AttrValue> Rope::head_attrs(double query_scale) const {
  const bool partial = channels != 0;
  Rope plain = *this;
  if (partial) plain.attention = 1;
  std::vector<AttrValue> all = plain.attrs(plain.key_scale() * query_scale);
  all.insert(all.end(), {{"turned", static_cast<double>(channels)},
                         {"interleaved", neighbours ? 1.0 : 0.0},
                         {"query_growth", growth}});
  if (partial) all.push_back({"turned_scale", key_scale()});
  if (until == 0) return all;
  static const std::vector<std::string> names = [] {
    std::vector<std::string> numbered;
    numbered.reserve(100);
    for (int i = 0; i < 100; ++i)
      numbered.push_back(std::string("slower_") + static_cast<char>('0' + i / 10) +
                         static_cast<char>('0' + i % 10));
    return numbered;
  }();
  const std::vector<double>& list = seq > until ? longer : shorter;
  for (std::size_t i = 0; i < list.size(); ++i) all.push_back({names.at(i).c_str(), list[i]});
  return all;
}

double Rope::score_scale() const {
  const double root = yarn_scale(slowed_by(), mscale);
  return root * root;
}

void write_rope_options(const RopeConfig& config, const Family& family, ConfigWriter& options) {
  const Rope& rope = config.rope;
  options.set("rope_base", rope.base);
  options.set("rope_factor", rope.factor);
  if (config.window_base != 0) options.set("rope_base_window", config.window_base);
  if (rope.channels != 0) options.set("rope_channels", rope.channels);
  if (rope.growth != 0) options.set("rope_growth", rope.growth);
  if (rope.until != 0) {
    options.set("rope_switch", rope.until);
    write_numbers(options, "rope_short", rope.shorter);
    write_numbers(options, "rope_long", rope.longer);
    if (rope.attention != 1) options.set("rope_attention", rope.attention);
  }
  if (rope.factor == 1) return;
  if (rope.scaling != "llama3") options.set("rope_scaling", rope.scaling);
  if (family.latent && rope.mscale != 0) options.set("rope_mscale", rope.mscale);
  if (rope.scaling == "linear" || rope.scaling == "dynamic") return;
  options.set("rope_low", rope.low);
  options.set("rope_high", rope.high);
  options.set("rope_original", rope.original);
  if (!rope.whole) options.set("rope_truncate", false);
  if (rope.attention != 1) options.set("rope_attention", rope.attention);
}

namespace {

// Writes a table but for its base; without `named` only one that slows positions down.
void write_table(const Rope& rope, const std::string& table, bool named, ConfigWriter& config) {
  if (named || rope.factor != 1) config.set(table + "rope_type", rope.factor == 1 ? "default" : rope.scaling);
  if (rope.factor == 1) return;
  config.set(table + "factor", rope.factor);
  if (rope.mscale != 0) config.set(table + "mscale_all_dim", rope.mscale);
  if (rope.scaling == "linear" || rope.scaling == "dynamic") return;
  const bool yarn = rope.scaling == "yarn";
  config.set(table + (yarn ? "beta_slow" : "low_freq_factor"), rope.low);
  config.set(table + (yarn ? "beta_fast" : "high_freq_factor"), rope.high);
  if (yarn) config.set(table + "attention_factor", rope.attention);
  if (yarn && !rope.whole) config.set(table + "truncate", false);
  if (rope.growth != 0) config.set(table + "llama_4_scaling_beta", rope.growth);
  config.set(table + "original_max_position_embeddings", static_cast<std::int64_t>(rope.original));
}

// Readers compute what queries and keys are multiplied by where the table does not say it.
void write_lists(const Rope& rope, std::int64_t positions, ConfigWriter& config) {
  config.set("original_max_position_embeddings", rope.until);
  config.set("rope_scaling.type", "longrope");
  write_numbers(config, "rope_scaling.short_factor", rope.shorter);
  write_numbers(config, "rope_scaling.long_factor", rope.longer);
  const double ratio = static_cast<double>(positions) / static_cast<double>(rope.until);
  if (rope.attention != scale_of_lists(ratio, rope.until))
    config.set("rope_scaling.attention_factor", rope.attention);
}

}  // namespace

void write_rope_config(const RopeConfig& written, const Family& family, std::int64_t positions,
                       ConfigWriter& config) {
  const Rope& rope = written.rope;
  if (rope.factor != 1 && !family.slowed) throw_no_key(family, "rope_factor", "positions that turn slower");
  if (rope.growth != 0 && (!family.growth_said || rope.factor == 1 || rope.scaling != "yarn"))
    throw_no_key(family, "rope_growth", "queries that grow with the position");
  if (rope.until != 0 && family.lists_switch == 0)
    throw_no_key(family, "rope_switch", "pairs that turn by lists");
  if (family.rope_keys == RopeKeys::tables) {
    const struct {
      const char* kind;
      Rope rope;
    } tables[] = {{"full_attention", rope}, {"sliding_attention", written.of_layer(true)}};
    for (const auto& table : tables) {
      const std::string name = std::string("rope_parameters.") + table.kind + ".";
      config.set(name + "rope_theta", table.rope.base);
      write_table(table.rope, name, true, config);
    }
    return;
  }
  if (written.window_base != 0 && family.rope_keys == RopeKeys::alike)
    throw_no_key(family, "rope_base_window", "a base of windowed layers");
  config.set("rope_theta", rope.base);
  if (family.rope_keys == RopeKeys::local_base)
    config.set("rope_local_base_freq", written.window_base == 0 ? rope.base : written.window_base);
  if (rope.until != 0)
    write_lists(rope, positions, config);
  else
    write_table(rope, "rope_scaling.", family.slowed_by, config);
}

}  // namespace prun
