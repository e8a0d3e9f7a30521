#include "chat/built_in.hpp"

namespace prun::chat {
namespace {

constexpr BuiltIn built_in[] = {
    {"chatml",
     R"({%- for message in messages %}
{{- '<|im_start|>' + message.role + '\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{{- message.content + '<|im_end|>\n' }}
{%- endgeneration %}
{%- else %}
{{- message.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- endif %})",
     "",
     "<|im_end|>",
     {"<|im_start|>", "<|im_end|>"}},
    {"llama3",
     R"({{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{%- if message.role == 'assistant' %}
{%- generation %}
{{- message.content | trim + '<|eot_id|>' }}
{%- endgeneration %}
{%- else %}
{{- message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})",
     "<|begin_of_text|>",
     "<|eot_id|>",
     {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
    {"mistral",
     R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}
{{- raise_exception('the roles must be user and assistant in turn, and this template has no others') }}
{%- endif %}
{%- if message.role == 'user' %}
{{- '[INST] ' + message.content + ' [/INST]' }}
{%- else %}
{%- generation %}
{{- message.content + eos_token }}
{%- endgeneration %}
{%- endif %}
{%- endfor %})",
     "<s>",
     "</s>",
     {}},
    {"gemma",
     R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role != ('user' if loop.index0 % 2 == 0 else 'assistant') %}
{{- raise_exception('the roles must be user and assistant in turn, and this template has no others') }}
{%- endif %}
{%- if message.role == 'user' %}
{{- '<start_of_turn>user\n' + message.content | trim + '<end_of_turn>\n' }}
{%- else %}
{{- '<start_of_turn>model\n' }}
{%- generation %}
{{- message.content | trim + '<end_of_turn>\n' }}
{%- endgeneration %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\n' }}
{%- endif %})",
     "<bos>",
     "<end_of_turn>",
     {"<start_of_turn>", "<end_of_turn>"}},
};

}  // namespace

const BuiltIn* find_built_in(std::string_view name) {
  for (const BuiltIn& one : built_in)
    if (one.name == name) return &one;
  return nullptr;
}

std::vector<std::string> names_of_built_in() {
  std::vector<std::string> names;
  for (const BuiltIn& one : built_in) names.emplace_back(one.name);
  return names;
}

}  // namespace prun::chat
