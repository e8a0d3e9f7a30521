// Converts the YAML of axolotl, which fine-tunes models of Hugging Face on conversations.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/text.hpp"
#include "convert/layout.hpp"
#include "convert/transfer.hpp"
#include "prun/error.hpp"

namespace prun::convert {
namespace {

using enum Fate;

constexpr const char* few_bits = "frozen weights have the type that the run computes in";
constexpr const char* planned = "what runs is planned ahead";
constexpr const char* one_file = "data.path is one file, or a folder of them";
constexpr const char* by_epoch =
    "checkpoints and evaluations are counted in steps: run.save_every, eval.every";
constexpr const char* of_model = "special tokens are those of the model's folder and of its tokenizer";

constexpr std::array rules = {
    Rule{"model_type", "", without_effect, "the folder's config.json says it"},
    Rule{"tokenizer_type", "", without_effect, "the folder's tokenizer.json says it"},
    Rule{"tokenizer_use_fast", "", without_effect, "there is one reader of tokenizers"},
    Rule{"is_*_derived_model", "", without_effect, "the folder's config.json says it"},
    Rule{"trust_remote_code", "", without_effect, "no code of a folder is run"},
    Rule{"strict", "", without_effect, "every setting is accounted for"},
    Rule{"load_in_8bit", "false", without_effect, "as here"},
    Rule{"load_in_4bit", "false", without_effect, "as here"},
    Rule{"load_in_*bit", "", refused, few_bits},
    Rule{"bnb_*", "", refused, few_bits},
    Rule{"gptq*", "", refused, few_bits},
    Rule{"datasets.1.*", "", refused, "lines say their form themselves (docs/finetuning.md)"},
    Rule{"datasets.*", "", refused, one_file},
    Rule{"test_datasets*", "", refused, "[[validation]] names sets, data.validation a share of the data"},
    Rule{"dataset_prepared_path", "", without_effect, "tokens are made as the run begins"},
    Rule{"dataset_processes", "", without_effect, "device.threads"},
    Rule{"shuffle_merged_datasets", "true", without_effect, "as here"},
    Rule{"train_on_inputs", "false", without_effect, "as here"},
    Rule{"train_on_inputs", "true", carried, "data.learn", "all"},
    Rule{"group_by_length", "false", without_effect, "as here"},
    Rule{"group_by_length", "", refused, "samples come in an order of their own; data.pack fills them"},
    Rule{"sample_packing", "", carried, "data.pack"},
    Rule{"eval_sample_packing", "", without_effect, "evaluations pack as training does"},
    Rule{"pad_to_sequence_len", "", without_effect, "samples have model.seq tokens"},
    Rule{"sequence_len", "", carried, "model.seq"},
    Rule{"chat_template", "tokenizer_default", carried, "data.template", "own"},
    Rule{"chat_template", "chatml|llama3|gemma", carried, "data.template"},
    Rule{"chat_template", "", refused, "templates are own, chatml, llama3, mistral and gemma, or a file"},
    Rule{"special_tokens.*", "", refused, of_model},
    Rule{"tokens", "", refused, of_model},
    Rule{"added_tokens_overrides.*", "", refused, of_model},
    Rule{"lora_*", "", refused, "strategy lora has targets, rank, alpha, dropout and rslora"},
    Rule{"peft_*", "", refused, "strategy lora has targets, rank, alpha, dropout and rslora"},
    Rule{"tf32", "", without_effect, "products are in precision.compute"},
    Rule{"bf16", "false", without_effect, "precision.compute says it"},
    Rule{"fp16", "false", without_effect, "precision.compute says it"},
    Rule{"*flash_attention", "", without_effect, "kernels are chosen by type and shape"},
    Rule{"flash_attn_*", "", without_effect, "kernels are chosen by type and shape"},
    Rule{"attn_implementation", "", without_effect, "kernels are chosen by type and shape"},
    Rule{"xformers_attention", "", without_effect, "kernels are chosen by type and shape"},
    Rule{"sdp_attention", "", without_effect, "kernels are chosen by type and shape"},
    Rule{"eager_attention", "", without_effect, "kernels are chosen by type and shape"},
    Rule{"torch_compile*", "", without_effect, planned},
    Rule{"plugins", "", refused, "their plugins are Python"},
    Rule{"liger_*", "", without_effect, planned},
    Rule{"cut_cross_entropy", "", without_effect, "logits exist a chunk at a time"},
    Rule{"gradient_checkpointing", "false", without_effect, "as here"},
    Rule{"gradient_checkpointing", "", refused, "strategies recompute and offload say what is kept where"},
    Rule{"gradient_checkpointing_kwargs.*", "", without_effect, planned},
    Rule{"fsdp*", "", without_effect, "strategy zero, stage 3"},
    Rule{"deepspeed", "", refused, "prun convert reads that file as well"},
    Rule{"seed", "", carried, "run.seed"},
    Rule{"output_dir", "", carried, "run.out"},
    Rule{"save_total_limit", "", carried, "run.keep"},
    Rule{"save_safetensors", "", without_effect, "checkpoints are safetensors"},
    Rule{"save_only_model", "", without_effect, "prun export writes weights alone"},
    Rule{"save_strategy", "", without_effect, "run.save_every"},
    Rule{"eval_strategy", "", without_effect, "eval.every"},
    Rule{"evals_per_epoch", "", refused, by_epoch},
    Rule{"saves_per_epoch", "", refused, by_epoch},
    Rule{"eval_table_size", "", refused, "prun generate makes text of a run"},
    Rule{"eval_batch_size", "", without_effect, "evaluations take batch.micro"},
    Rule{"resume_from_checkpoint", "", refused, "run.resume takes a checkpoint of prun"},
    Rule{"auto_resume_from_checkpoints", "", refused, "run.resume takes a checkpoint of prun"},
    Rule{"early_stopping_patience", "", refused, "a run ends after its steps; run.keep_best"},
    Rule{"logging_steps", "", without_effect, "every step is logged"},
    Rule{"debug", "", without_effect, "prun plan says what runs"},
    Rule{"wandb_*", "", refused, "observer wandb has path and project"},
    Rule{"mlflow_*", "", refused, "observers are console, jsonl, tensorboard and wandb"},
    Rule{"local_rank", "", without_effect, "ranks are prun's"},
    Rule{"ddp_*", "", without_effect, planned},
};

// ------------------------------------------------------------------- the part of YAML that is read

struct Line {
  std::size_t number, indent;
  std::string_view text;
};

// Reads tables and lists by indentation, texts with or without quotes, and lists in brackets. Other forms of
// YAML are refused by their line.
class YamlReader {
 public:
  YamlReader(std::string_view text, Transfer& transfer) : transfer_(transfer) {
    std::size_t number = 0;
    for (const std::string_view whole : split(text, '\n')) {
      ++number;
      std::string_view line = without_comment(whole);
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      line = trim(line);
      if (line.empty() || (line == "---" && lines_.empty())) continue;
      lines_.push_back({number, indent, line});
      if (whole.find('\t') < whole.find(line))
        throw_error(ErrorCode::bad_input, "line ", number, " is indented by a tab; use blanks");
    }
  }

  void read() {
    at_ = 0;
    if (!lines_.empty()) read_block(lines_.front().indent, "", 0);
    if (at_ < lines_.size()) fail("is indented otherwise than what it belongs to");
  }

 private:
  static constexpr int deepest = 16;

  [[noreturn]] void fail(std::string_view why) const {
    throw_error(ErrorCode::bad_input, "line ", lines_[std::min(at_, lines_.size() - 1)].number, " ", why);
  }

  static std::string_view without_comment(std::string_view line) {
    char quote = 0;
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (quote != 0)
        quote = line[i] == quote ? '\0' : quote;
      else if ((line[i] == '"' || line[i] == '\'') && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '['))
        quote = line[i];
      else if (line[i] == '#' && (i == 0 || line[i - 1] == ' '))
        return line.substr(0, i);
    }
    return line;
  }
  static bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }
  // Returns where the colon behind a key is.
  static std::size_t colon(std::string_view text) {
    if (text.starts_with('"') || text.starts_with('\'') || text.starts_with('[')) return text.npos;
    const std::size_t at = text.find(": ");
    return at != text.npos ? at : text.ends_with(':') ? text.size() - 1 : text.npos;
  }

  std::string scalar(std::string_view text) const {
    if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front())
      return std::string(text.substr(1, text.size() - 2));
    if (!text.empty() && std::string_view("|>&*!{").find(text.front()) != std::string_view::npos)
      fail("has a form of YAML that is not read; write keys, texts and lists");
    return std::string(text);
  }
  static std::string list_of(const std::vector<std::string>& items) {
    std::string all;
    for (const std::string& item : items) all += (all.empty() ? "\"" : ", \"") + item + "\"";
    return "[" + all + "]";
  }
  void add(const std::string& key, std::string_view text) const {
    if (text.empty() || text == "null" || text == "~") return;
    if (!text.starts_with('[')) return transfer_.add(key, scalar(text));
    if (!text.ends_with(']')) fail("begins a list that does not end on it");
    std::vector<std::string> items;
    for (const std::string_view item : split(text.substr(1, text.size() - 2), ','))
      if (!trim(item).empty()) items.push_back(scalar(trim(item)));
    transfer_.add(key, list_of(items));
  }

  void read_block(std::size_t indent, const std::string& above, int depth) {
    if (depth > deepest) fail("is indented too deep");
    std::vector<std::string> items;
    // A list may stand as far left as the key that it belongs to.
    const bool list = is_item(lines_[at_].text);
    for (std::size_t item = 1;
         at_ < lines_.size() && lines_[at_].indent == indent && is_item(lines_[at_].text) == list; ++item)
      if (list)
        read_item(above, item, items, depth);
      else
        read_member(indent, above, depth);
    if (at_ < lines_.size() && lines_[at_].indent > indent)
      fail("is indented otherwise than what it belongs to");
    if (!items.empty()) transfer_.add(above, list_of(items));
  }
  void read_item(const std::string& above, std::size_t item, std::vector<std::string>& items, int depth) {
    Line& line = lines_[at_];
    const std::string_view rest = trim(line.text.substr(1));
    if (rest.empty()) fail("begins an item on a line of its own; write its first key on the same line");
    if (colon(rest) == rest.npos) {
      items.push_back(scalar(rest));
      ++at_;
      return;
    }
    line.indent += static_cast<std::size_t>(rest.data() - line.text.data());
    line.text = rest;
    read_block(line.indent, above + "." + std::to_string(item), depth + 1);
  }
  void read_member(std::size_t indent, const std::string& above, int depth) {
    const std::string_view text = lines_[at_].text;
    const std::size_t end = colon(text);
    if (end == text.npos) fail("is neither a key with a value nor an item of a list");
    const std::string key = (above.empty() ? "" : above + ".") + std::string(trim(text.substr(0, end)));
    const std::string_view value = trim(text.substr(end + 1));
    if (!value.empty()) add(key, value);
    ++at_;
    if (!value.empty() || at_ == lines_.size()) return;
    const Line& next = lines_[at_];
    if (next.indent > indent || (next.indent == indent && is_item(next.text)))
      read_block(next.indent, key, depth + 1);
  }

  Transfer& transfer_;
  std::vector<Line> lines_;
  std::size_t at_ = 0;
};

// ------------------------------------------------------------------- parts

bool is_here(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void convert_model(Transfer& transfer) {
  const std::string key = "base_model", base = transfer.text(key);
  if (transfer.knows("model.init"))
    transfer.without_effect(key, "model.init names its folder");
  else if (!transfer.given().model.empty())
    transfer.refuse(key, "--model gives its shape alone; --set model.init=FOLDER starts from its weights");
  else if (is_here(base)) {
    transfer.set_text("model.init", base, key);
    transfer.carried(key);
  } else
    transfer.ask("--set model.init=FOLDER", "the folder of base_model, since a recipe downloads nothing");
}

// The other options of data are those of conversations.
void convert_data(Transfer& transfer) {
  const std::string path = "datasets.1.path", type = "datasets.1.type", kind = transfer.text(type);
  if (!kind.empty() && kind != "chat_template" && !kind.starts_with("sharegpt"))
    transfer.refuse(type, "lines are conversations, which the chat template writes");
  else
    transfer.carried(type);
  transfer.set_text("data.plugin", "chat", transfer.has(type) ? type : "datasets");
  transfer.set("data.mask_documents", true, "conversations do not see each other");
  const std::string files = transfer.text("datasets.1.data_files"), name = transfer.text(path);
  if (is_here(files) || is_here(name)) {
    transfer.set_text("data.path", is_here(files) ? files : name, "datasets");
    transfer.carried(is_here(files) ? "datasets.1.data_files" : path);
  } else {
    transfer.without_effect(path, "data.path names its file");
    if (!transfer.knows("data.path"))
      transfer.ask("--set data.path=FILE", "its conversations, one a line (docs/finetuning.md)");
  }
  for (const char* field : {"datasets.1.field_messages", "datasets.1.ds_type", "datasets.1.split"})
    transfer.without_effect(field, "lines say their form themselves (docs/finetuning.md)");
  const std::string tokenizer = transfer.text("tokenizer_config", transfer.text("base_model"));
  if (is_here(tokenizer)) {
    transfer.set_text("data.tokenizer", tokenizer,
                      transfer.has("tokenizer_config") ? "tokenizer_config" : "base_model");
    transfer.carried("tokenizer_config");
  } else if (!transfer.knows("data.tokenizer")) {
    transfer.ask("--set data.tokenizer=FOLDER", "the folder of the tokenizer.json");
  }
  for (const char* token : {"data.between", "data.end_of_text"})
    if (!transfer.knows(token))
      transfer.ask(detail::concat("--set ", token, "=ID"),
                   "the token between two conversations, which none of them holds");
}

Axes convert_axes(Transfer& transfer) {
  Axes axes;
  axes.tensor_origin = "tensor_parallel_size";
  axes.tensor = transfer.integer("tensor_parallel_size", 1);
  transfer.carried("tensor_parallel_size");
  read_sequence(transfer, {"context_parallel_size", "sequence_parallel_degree"}, axes);
  axes.data = data_ranks(transfer, {}, axes).value_or(1);
  axes.data_origin = data_origin("--ranks", axes);
  write_axes(transfer, axes);
  const auto of_fsdp = [](const Setting& setting) { return setting.key.starts_with("fsdp"); };
  const auto& settings = transfer.settings();
  if (std::any_of(settings.begin(), settings.end(), of_fsdp)) write_zero(transfer, axes, 3, "fsdp");
  return axes;
}

void convert_batch(Transfer& transfer, const Axes& axes) {
  const std::string micro = "micro_batch_size", steps = "gradient_accumulation_steps";
  transfer.take(micro, "batch.micro", "1");
  transfer.set("batch.global", product({transfer.integer(micro, 1), transfer.integer(steps, 1), axes.data}),
               "micro_batch_size x gradient_accumulation_steps x ranks of dp");
  transfer.carried(steps);
}

void convert_length(Transfer& transfer) {
  if (transfer.integer("max_steps", 0) > 0) {
    transfer.take("max_steps", "run.steps");
    transfer.without_effect("num_epochs", "max_steps counts");
  } else {
    transfer.take("num_epochs", "run.epochs", "1");
    transfer.set("run.steps", std::int64_t{1000000}, "num_epochs ends the run");
  }
}

// A number of warmup_steps below 1 is a share of the steps, as under warmup_ratio.
void convert_warmup(Transfer& transfer) {
  const std::string to = "optimizer.schedule.warmup", counted = "warmup_steps";
  const bool whole =
      transfer.has(counted) && (transfer.number(counted) == 0 || *transfer.number(counted) >= 1);
  const std::string ratio = transfer.has(counted) ? counted : "warmup_ratio";
  const std::int64_t steps = transfer.integer("max_steps", 0);
  if (whole) {
    transfer.take(counted, to);
  } else if (transfer.has(ratio) && steps > 0) {
    // A share under warmup_steps is rounded up, and one under warmup_ratio down.
    const double share = *transfer.number(ratio) * static_cast<double>(steps);
    transfer.set(to, static_cast<std::int64_t>(ratio == counted ? std::ceil(share) : std::floor(share)),
                 ratio + " x max_steps");
    transfer.carried(ratio);
  } else if (transfer.has(ratio)) {
    transfer.refuse(ratio,
                    "without max_steps nobody knows yet how many steps there are; set "
                    "optimizer.schedule.warmup");
  } else {
    transfer.refuse_default("warmup_steps", "3 % of the steps, 100 at most", "set optimizer.schedule.warmup");
  }
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Where pages lie is the strategy offload's, and what the optimizer computes is the same with and without.
void convert_optimizer(Transfer& transfer) {
  const std::string key = "optimizer", name = transfer.text(key, "adamw_torch_fused");
  const bool eight =
      is_one_of(name, {"adamw_bnb_8bit", "adamw_8bit", "adamw_torch_8bit", "paged_adamw_8bit"});
  if (eight) transfer.set_text("precision.moments", "8bit", key);
  if (eight || is_one_of(name, {"adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused",
                                "paged_adamw_32bit"})) {
    transfer.set_text("optimizer.plugin", "adamw",
                      transfer.has(key) ? key : "default of axolotl's optimizer");
    transfer.set("optimizer.betas",
                 std::vector{transfer.number("adam_beta1").value_or(0.9),
                             transfer.number("adam_beta2").value_or(0.999)},
                 "adam_beta1 and adam_beta2, or their defaults");
    transfer.carried(key);
    transfer.carried("adam_beta1");
    transfer.carried("adam_beta2");
    transfer.take("adam_epsilon", "optimizer.eps", "1e-8");
    transfer.take("weight_decay", "optimizer.weight_decay", "0");
  } else {
    transfer.refuse(key, "optimizers are adamw, lion, adafactor, muon and sgd, with options of their own");
  }
  transfer.take("learning_rate", "optimizer.lr");
  transfer.take("max_grad_norm", "optimizer.clip", "1");
  const std::string schedule = transfer.text("lr_scheduler", "cosine");
  if (schedule == "cosine" || schedule == "linear" || schedule == "constant")
    transfer.take("lr_scheduler", "optimizer.schedule.kind", "cosine");
  else
    transfer.refuse("lr_scheduler", "the schedules are constant, linear and cosine, and others of their own");
  transfer.take("cosine_min_lr_ratio", "optimizer.schedule.final", "0");
  convert_warmup(transfer);
}

void convert_adapter(Transfer& transfer) {
  const std::string key = "adapter", kind = transfer.text(key);
  if (kind.empty()) return;
  if (kind == "qlora")
    transfer.refuse(
        key, "its adapters are strategy lora's; frozen weights have the type that the run computes in");
  else if (kind == "lora")
    transfer.carried(key);
  else
    return transfer.refuse(key, "the adapters are those of strategy lora");
  transfer.take("lora_r", "strategy.lora.rank", "8");
  transfer.take("lora_alpha", "strategy.lora.alpha", "16");
  transfer.take("lora_dropout", "strategy.lora.dropout", "0");
  if (transfer.is("peft_use_rslora", "true")) transfer.take("peft_use_rslora", "strategy.lora.rslora");
  if (transfer.has("lora_target_modules")) {
    transfer.take("lora_target_modules", "strategy.lora.targets");
  } else {
    transfer.set_text("strategy.lora.targets", "all-linear", "lora_target_linear");
  }
  transfer.carried("lora_target_linear");
}

void convert_memory(Transfer& transfer) {
  const bool half = transfer.is("fp16", "true");
  const std::string bf16 = transfer.text("bf16", half ? "false" : "auto");
  const char* const key = half ? "fp16" : "bf16";
  if (half || bf16 == "true" || bf16 == "auto" || bf16 == "full") {
    transfer.set_text("precision.compute", key, transfer.has(key) ? key : "default of axolotl's bf16");
    transfer.carried(key);
  }
  if (!transfer.is("gradient_checkpointing", "true")) return;
  transfer.set_text("strategy.recompute.mode", "full", "gradient_checkpointing");
  transfer.carried("gradient_checkpointing");
}

void convert_saving(Transfer& transfer) {
  if (transfer.number("val_set_size").value_or(0) >= 1)
    transfer.refuse("val_set_size", "data.validation is a share of the data");
  else if (transfer.has("val_set_size"))
    transfer.take("val_set_size", "data.validation");
  for (const auto& [from, to] : {std::pair{"save_steps", "run.save_every"}, {"eval_steps", "eval.every"}}) {
    const double steps = transfer.number(from).value_or(0);
    if (steps > 0 && steps < 1)
      transfer.refuse(from, by_epoch);
    else if (transfer.has(from))
      transfer.take(from, to);
  }
  if (transfer.text("wandb_project").empty()) return;
  transfer.take("wandb_project", "observer.wandb.project");
}

}  // namespace

void convert_axolotl(Transfer& transfer, std::string_view text) {
  YamlReader(text, transfer).read();
  convert_model(transfer);
  convert_data(transfer);
  const Axes axes = convert_axes(transfer);
  convert_batch(transfer, axes);
  convert_length(transfer);
  convert_optimizer(transfer);
  convert_adapter(transfer);
  convert_memory(transfer);
  convert_saving(transfer);
  transfer.apply(rules);
}

}  // namespace prun::convert
