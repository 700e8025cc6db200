"""What each key of a tokenizer_config.json is to a bundle: those that transformers 5.23 reads, and older ones."""

from weft_export.converters.keys import NEUTRAL, USED, Noted, Only, Table

_USED = """
tokenizer_class model_max_length added_tokens_decoder chat_template model_input_names
extra_special_tokens additional_special_tokens model_specific_special_tokens
add_bos_token add_eos_token add_prefix_space trim_offsets legacy legacy_behaviour
do_lower_case strip_accents tokenize_chinese_chars keep_accents split_by_punct
source_lang target_lang separate_vocabs language_codes extra_ids offset mask_token_sent unk_id
clean_up_tokenization_spaces clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output truncation_side
"""
# How a batch is filled up and cut, which a server does in its own way; names of files; what the class does not ask.
_NEUTRAL = """
padding padding_side pad_to_multiple_of pad_token_type_id truncation truncation_strategy
max_length max_len stride return_token_type_ids return_attention_mask
name_or_path tokenizer_file vocab_file merges_file special_tokens_map_file files_loaded is_local local_files_only
source_spm target_spm spm_file backend use_fast verbose processor_class auto_map image_processor_class
transformers_version tokenizer_type
src_lang tgt_lang language task predict_timestamps num_madeup_words vocab_type remove_space
do_basic_tokenize never_split use_default_system_prompt spaces_between_special_tokens
response_template response_schema chat_control_tokens
"""
OPTION_KEYS: Table = {
    **dict.fromkeys(_USED.split(), USED),
    **dict.fromkeys(_NEUTRAL.split(), NEUTRAL),
    "split_special_tokens": Only((False,)),
    # What a class is called with besides its keys: of CamemBERT, the vocabulary.
    "init_inputs": Only(),
    # They may ask for pieces that are drawn at random.
    "sp_model_kwargs": Only(),
    "errors": Noted(("replace",), "bytes that are no UTF-8 are written as U+FFFD"),
    "normalize": Noted((False,), "what a Whisper writes is not normalised"),
}
CLEANS = "clean_up_tokenization_spaces"
"""Whether spaces before marks are taken out of what is written: `Yes .` becomes `Yes.`."""
CLEANS_BPE = f"{CLEANS}_for_bpe_even_though_it_will_corrupt_output"
