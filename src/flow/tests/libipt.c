/* Prints what Intel's reference decoder makes of a raw trace and raw code sections: one
 * instruction address a line, and "gap" where it lost the path.
 *
 *   libipt insns|blocks TRACE [ADDRESS CODE]...
 *
 * "blocks" decodes with the block decoder, prints only "instructions N blocks B gaps G seconds S".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <intel-pt.h>

struct section {
	uint64_t start, size;
	uint8_t *bytes;
};

static struct section sections[64];
static int section_count;

static uint8_t *slurp(const char *path, uint64_t *size)
{
	FILE *file = fopen(path, "rb");
	if (!file) {
		perror(path);
		exit(2);
	}
	fseek(file, 0, SEEK_END);
	*size = (uint64_t)ftell(file);
	rewind(file);
	uint8_t *bytes = malloc(*size + 1);
	if (fread(bytes, 1, *size, file) != *size)
		exit(2);
	fclose(file);
	return bytes;
}

static int read_code(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
	(void)asid;
	(void)context;
	for (int at = section_count - 1; at >= 0; at--) {
		const struct section *section = &sections[at];
		if (ip < section->start || ip - section->start >= section->size)
			continue;
		uint64_t left = section->size - (ip - section->start);
		if (left < size)
			size = left;
		memcpy(buffer, section->bytes + (ip - section->start), size);
		return (int)size;
	}
	return -pte_nomap;
}

static void list(struct pt_config *config)
{
	struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
	pt_image_set_callback(pt_insn_get_image(decoder), read_code, NULL);
	for (;;) {
		int status = pt_insn_sync_forward(decoder);
		while (status >= 0) {
			while (status & pts_event_pending) {
				struct pt_event event;
				status = pt_insn_event(decoder, &event, sizeof(event));
				if (status < 0)
					break;
			}
			if (status < 0)
				break;
			struct pt_insn insn;
			memset(&insn, 0, sizeof(insn));
			status = pt_insn_next(decoder, &insn, sizeof(insn));
			if (status >= 0 || insn.iclass != ptic_error)
				printf("%016" PRIx64 "\n", insn.ip);
		}
		if (status == -pte_eos)
			break;
		uint64_t offset = 0;
		pt_insn_get_offset(decoder, &offset);
		printf("gap\n");
		fprintf(stderr, "gap at %" PRIx64 ": %s\n", offset, pt_errstr(pt_errcode(status)));
	}
	pt_insn_free_decoder(decoder);
}

static void count(struct pt_config *config)
{
	uint64_t insns = 0, blocks = 0, gaps = 0;
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	struct pt_block_decoder *decoder = pt_blk_alloc_decoder(config);
	struct pt_image *image = pt_image_alloc("code");
	struct pt_image_section_cache *cache = pt_iscache_alloc(NULL);
	for (int at = 0; at < section_count; at++) {
		const struct section *section = &sections[at];
		int id = pt_iscache_add_file(cache, (const char *)section->bytes, 0, section->size, section->start);
		pt_image_add_cached(image, cache, id, NULL);
	}
	pt_blk_set_image(decoder, image);
	for (;;) {
		int status = pt_blk_sync_forward(decoder);
		while (status >= 0) {
			while (status & pts_event_pending) {
				struct pt_event event;
				status = pt_blk_event(decoder, &event, sizeof(event));
				if (status < 0)
					break;
			}
			if (status < 0)
				break;
			struct pt_block block;
			memset(&block, 0, sizeof(block));
			status = pt_blk_next(decoder, &block, sizeof(block));
			insns += block.ninsn;
			blocks += block.ninsn > 0;
		}
		if (status == -pte_eos)
			break;
		gaps++;
	}
	clock_gettime(CLOCK_MONOTONIC, &to);
	double seconds = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
	printf("instructions %" PRIu64 " blocks %" PRIu64 " gaps %" PRIu64 " seconds %.6f\n", insns, blocks, gaps, seconds);
	pt_blk_free_decoder(decoder);
	pt_image_free(image);
	pt_iscache_free(cache);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	int blocks = strcmp(argv[1], "blocks") == 0;
	struct pt_config config;
	uint64_t size;
	pt_config_init(&config);
	config.begin = slurp(argv[2], &size);
	config.end = config.begin + size;
	for (int at = 3; at + 1 < argc && section_count < 64; at += 2) {
		struct section *section = &sections[section_count++];
		section->start = strtoull(argv[at], NULL, 16);
		if (blocks) {
			/* The section cache maps files itself. */
			free(slurp(argv[at + 1], &section->size));
			section->bytes = (uint8_t *)argv[at + 1];
		} else {
			section->bytes = slurp(argv[at + 1], &section->size);
		}
	}
	(blocks ? count : list)(&config);
	return 0;
}
